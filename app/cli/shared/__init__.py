"""Code that several commands share: options, files, samples, the terminal."""
