"""The libraries that wsdsl is measured beside, each at its best: several configurations a shape."""
