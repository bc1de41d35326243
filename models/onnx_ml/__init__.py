"""Models of tables from ONNX files: the client's columns, and trees, a linear model or a network after them."""
