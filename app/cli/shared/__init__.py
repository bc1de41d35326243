"""What several commands read, check and print alike: options, files, samples, the terminal."""
