"""What a mask costs: its blocks as a picture, and the work on them. `show` draws it, `report` puts it on a page."""
