"""One algorithm per file, each a function (BuildContext, hparams) -> JaxAlgorithm."""
