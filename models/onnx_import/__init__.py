"""The ONNX front end: one function per operator, registered by name. `importer.import_onnx` is the way in."""
