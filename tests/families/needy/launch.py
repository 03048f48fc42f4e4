import package_that_nobody_has

LAUNCHER = package_that_nobody_has.LAUNCHER
