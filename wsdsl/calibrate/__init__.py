"""`wsdsl calibrate`: measure the hardware parameters of this machine's GPU (`wsdsl/rates`)."""
