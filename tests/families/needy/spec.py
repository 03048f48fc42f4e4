"""A family whose kernel package is not installed."""

from pydantic import BaseModel, ConfigDict

from attnctl_kernels.contract import Family


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Needy(Family):
    name = "needy"
    title = "Needs a package that nobody has"
    extra = "needy"

    def config_model(self, pass_name):
        return Config

    def default_config(self, problem, pass_name, arch, sparse_block):
        return {}

    def space(self, problem, pass_name, arch):
        return {}


FAMILY = Needy()
