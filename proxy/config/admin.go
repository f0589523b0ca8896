package config

// operators checks that the admin listener in TLS has certificates, stands beside
// all others, and is not open to everybody.
func (r *reading) operators(f *file) {
	at := &f.Admin.HTTPS
	secure := r.address(at, offered(*at))
	if secure.port == "" {
		return
	}
	if offered(f.Listen.HTTPS) == "" {
		r.wrong(at, "has no certificate: it shows those of listen.https, and that is none", "write listen: {https: HOST:PORT, tls: ...} as well, or http on a loopback address here")
	}
	for _, other := range []struct{ name, text string }{
		{"listen.http", f.Listen.HTTP}, {"listen.https", f.Listen.HTTPS}, {"admin.http", f.Admin.HTTP},
	} {
		if secure.clashes(spot(other.text)) {
			r.wrong(at, "listens where "+other.name+" does", "use another port")
		}
	}
	if f.Admin.Token == "" && !secure.loopback() && r.sound(&f.Admin.Token) {
		r.wrong(at, "everybody on the network could use the admin listener", `set admin.token, for example "${WEIR_ADMIN_TOKEN}", or listen on 127.0.0.1`)
	}
}
