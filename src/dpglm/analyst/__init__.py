"""The analyst's side: sees only releases, never a row, and never imports ``dpglm.custodian``."""
