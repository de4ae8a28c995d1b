"""Models on disk: ``stock`` joins the parts, ``pulling`` fetches a model, ``adding`` takes one that is here."""
