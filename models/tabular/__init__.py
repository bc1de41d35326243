"""Models of tables: trees, forests, boosting and linear models, in a neutral form that knows no library, and their compilers."""
