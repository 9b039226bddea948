"""`wsdsl calibrate`: measures the rates of this machine's card (`wsdsl/rates`)."""
