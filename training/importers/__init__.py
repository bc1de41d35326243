"""Importers of fitted estimators of scikit-learn, XGBoost and LightGBM: neutral models that the compilers read.

`import_estimator` reads the numbers from the fitted object itself, so that its clear evaluation equals the estimator's `predict`.
"""

from cloakwork.training.importers.combining import ImportedModel
from cloakwork.training.importers.estimator import SUPPORTED, import_estimator, import_part, original_class

__all__ = ["SUPPORTED", "ImportedModel", "import_estimator", "import_part", "original_class"]
