package config

// adminTLS checks that the admin listener in TLS has certificates, stands beside
// all others, and is not open to everybody.
func (r *loader) adminTLS(f *file) {
	at := &f.Admin.HTTPS
	secure := r.address(at, listenAddress(*at))
	if secure.port == "" {
		return
	}
	if listenAddress(f.Listen.HTTPS) == "" {
		r.wrong(at, "has no certificate: it shows those of listen.https, and that is none", "write listen: {https: HOST:PORT, tls: ...} as well, or http on a loopback address here")
	}
	for _, other := range []struct{ name, text string }{
		{"listen.http", f.Listen.HTTP}, {"listen.https", f.Listen.HTTPS}, {"admin.http", f.Admin.HTTP},
	} {
		if secure.clashes(parseAddress(other.text)) {
			r.wrong(at, "listens where "+other.name+" does", "use another port")
		}
	}
	r.requireToken(at, secure, &f.Admin.Token)
}

// leastToken is how long a token is, at least, that others on the network could try
// to guess.
const leastToken = 16

// requireToken checks that an address of the admin listener that others can reach asks
// for a token, and for one that cannot be guessed.
func (r *loader) requireToken(at *string, a address, token *secret) {
	switch {
	case a.port == "" || a.loopback() || !r.ok(token):
	case *token == "":
		r.wrong(at, "everybody on the network could use the admin listener", `set admin.token, for example "${WEIR_ADMIN_TOKEN}", or listen on 127.0.0.1`)
	case len(*token) < leastToken:
		r.wrong(token, "is short enough to be guessed by others on the network", "use 16 characters or more, made at random, or listen on 127.0.0.1")
	}
}

// hosts are names that a client may ask for.
func (r *loader) hosts(names list) []string {
	for i := range names {
		if names[i] != "" && !isHost(names[i]) {
			r.wrong(&names[i], quote(names[i])+" is not a valid host name", "write for example weir.internal, without a port")
		}
	}
	if len(names) == 0 {
		return nil
	}
	return names
}
