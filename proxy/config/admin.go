package config

import (
	"crypto/x509"
	"slices"

	"github.com/weir-proxy/weir/proxy/config/internal/form"
)

// adminTLS checks that the admin listener with TLS has certificates, does not collide with
// other listeners, and requires a token.
func (r *loader) adminTLS(f *file) {
	at := &f.Admin.HTTPS
	secure := r.address(at, listenAddress(*at))
	if secure.port == "" {
		return
	}
	if listenAddress(f.Listen.HTTPS) == "" && r.Valid(&f.Listen.HTTPS) {
		r.Wrong(at, "has no certificate: it shows those of listen.https, and that is none", "write listen: {https: HOST:PORT, tls: ...} as well, or http on a loopback address here")
	}
	for _, other := range []struct{ name, text string }{
		{"listen.http", f.Listen.HTTP}, {"listen.https", f.Listen.HTTPS}, {"admin.http", f.Admin.HTTP},
	} {
		if secure.clashes(parseAddress(other.text)) {
			r.Wrong(at, "listens where "+other.name+" does", "use another port")
		}
	}
	r.requireToken(at, secure, &f.Admin)
}

// clientCA loads the authorities for client certificates.
func (r *loader) clientCA(f *adminForm) string {
	if f.ClientCA == "" {
		return ""
	}
	at := &f.ClientCA
	if listenAddress(f.HTTPS) == "" && r.Valid(&f.HTTPS) {
		r.Wrong(at, "no client certificate is requested, because there is no admin.https", "write https: HOST:PORT beside it")
	}
	if plain := parseAddress(f.HTTP); r.Valid(&f.HTTP) && plain.port != "" && !plain.loopback() {
		r.Wrong(at, "admin.http is reached from the network without a certificate", "let admin.http listen on 127.0.0.1")
	}
	data, ok := r.attach(at, maxAttached)
	if ok && !x509.NewCertPool().AppendCertsFromPEM(data) {
		r.Wrong(at, "there is no certificate in this file", "name a file with -----BEGIN CERTIFICATE-----")
	}
	return string(data)
}

// leastToken is the minimum length of a token that is used over the network.
const leastToken = 16

// requireToken checks that an address of the admin listener that other machines can reach
// requires a token of sufficient length.
func (r *loader) requireToken(at *string, a address, f *adminForm) {
	token := &f.Token
	switch {
	case a.port == "" || a.loopback() || !r.Valid(token):
	case *token == "" && slices.ContainsFunc(f.Tokens, func(t *tokenForm) bool { return t.Token != "" }): // whose length is checked separately
	case *token == "":
		r.Wrong(at, "anyone on the network could use the admin listener", `set admin.token, for example "${WEIR_ADMIN_TOKEN}", or listen on 127.0.0.1`)
	case len(*token) < leastToken:
		r.Wrong(token, "is short enough to guess by others on the network", "use 16 characters or more, made at random, or listen on 127.0.0.1")
	}
}

// operators returns the tokens of individual operators, without empty ones.
func (r *loader) operators(f *adminForm) []Token {
	var all []Token
	for _, t := range f.Tokens {
		if !r.Valid(&t.Name) || !r.Valid(&t.Token) || !r.Valid(&t.Role) {
			continue
		}
		switch {
		case !tokenSafe.MatchString(t.Name):
			r.Wrong(&t.Name, form.Quote(t.Name)+" is not a valid name", "write letters, digits, _, . and -, a letter first")
		case t.Name == "admin" || t.Name == "local":
			r.Wrong(&t.Name, form.Quote(t.Name)+" is what the audit trail calls who uses admin.token, or none", "choose another name")
		case slices.ContainsFunc(all, func(o Token) bool { return o.Name == t.Name }):
			r.Wrong(&t.Name, form.Quote(t.Name)+" is already used", "give each operator a name and a token of its own")
		}
		switch {
		case t.Token == "":
			continue
		case len(t.Token) < leastToken:
			r.Wrong(&t.Token, "is short enough to guess", "use 16 characters or more, made at random")
		case t.Token == f.Token || slices.ContainsFunc(all, func(o Token) bool { return o.Text == string(t.Token) }):
			r.Wrong(&t.Token, "is also the token of another operator", "give each operator a token of its own")
		}
		all = append(all, Token{Name: t.Name, Text: string(t.Token), Write: t.Role == "write"})
	}
	return all
}

// hosts returns the host names that clients may use.
func (r *loader) hosts(names list) []string {
	for i := range names {
		if names[i] != "" && !form.IsHost(names[i]) {
			r.Wrong(&names[i], form.Quote(names[i])+" is not a valid host name", "write for example weir.internal, without a port")
		}
	}
	if len(names) == 0 {
		return nil
	}
	return names
}
