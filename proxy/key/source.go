package key

import (
	"fmt"
	"strings"
)

// A Source is the part of a request that a key is read from. The zero Source is none: the
// key is made of others.
type Source uint8

// The sources that a key can be read from.
const (
	Header     Source = iota + 1 // a header field
	Query                        // a query parameter
	Path                         // a {parameter} of the route's path
	Cookie                       // a cookie
	Form                         // a field of a form in the body
	JSON                         // a value in a JSON body, by its pointer
	JWT                          // a claim of the verified bearer token
	ClientIP                     // the client's address; for IPv6, its network
	Host                         // the requested host, in lower case
	Method                       // the request method
	Descriptor                   // an entry of a descriptor, which Envoy sends instead of a request
	Global                       // one key for all requests

	numSources
)

// traits are what a source is, for all that treats sources differently without reading
// them.
type traits struct {
	name       string   // in configuration files
	fields     []string // the fields that must reach the upstream as they were read
	confused   Source   // the source in which some servers look for the same name
	isField    bool     // its names are those of header fields
	isNamed    bool     // needs a name, and a request may lack it
	isSpelled  bool     // clients write the text and nobody signs it, so servers may read it in other ways
	isLatin    bool     // some servers read its bytes as Latin-1
	isChosen   bool     // clients can choose any number of values
	isSigned   bool     // is in a token, which must be verified
	isBody     bool     // is read from the body
	isCostly   bool     // takes long to read, so that it is read late and once
	isLogged   bool     // a log may have it in a field of its own
	isAddress  bool     // is an address, or a network
	isOpen     bool     // has few values, which tell nothing about a person
	isConstant bool     // is the same for all requests
	isSecret   bool     // is what only its owner may know, whatever it is called
}

// table has the traits of each source, and none for that of keys that are made of others.
var table = [numSources]traits{
	Header:     {name: "header", isField: true, isNamed: true, isSpelled: true, isLatin: true, isChosen: true, isLogged: true},
	Query:      {name: "query", confused: Form, isNamed: true, isSpelled: true, isChosen: true, isLogged: true},
	Path:       {name: "path", isNamed: true, isSpelled: true, isChosen: true},
	Cookie:     {name: "cookie", fields: []string{"Cookie"}, isSecret: true, isNamed: true, isSpelled: true, isChosen: true, isLogged: true},
	Form:       {name: "form", fields: []string{"Content-Type", "Content-Encoding"}, confused: Query, isNamed: true, isSpelled: true, isLatin: true, isChosen: true, isBody: true, isCostly: true, isLogged: true},
	JSON:       {name: "json", fields: []string{"Content-Type", "Content-Encoding"}, isNamed: true, isSpelled: true, isChosen: true, isBody: true, isCostly: true, isLogged: true},
	JWT:        {name: "jwt", fields: []string{"Authorization"}, isNamed: true, isSigned: true, isCostly: true},
	ClientIP:   {name: "client_ip", isAddress: true},
	Host:       {name: "host", isChosen: true, isOpen: true},
	Method:     {name: "method", isChosen: true, isOpen: true},
	Descriptor: {name: "descriptor", isNamed: true, isSpelled: true, isChosen: true},
	Global:     {name: "global", isConstant: true},
}

// sourceOf returns the source with this name, 0 if there is none.
func sourceOf(name string) Source {
	for s := Header; s < numSources; s++ {
		if table[s].name == name {
			return s
		}
	}
	return 0
}

// possible returns an error that wraps ErrSpec if no request has text at s, as far as all texts there are known.
func (s Source) possible(text string) error {
	switch lower := strings.ToLower(text); {
	case s == Host && (lower != text || strings.ContainsAny(text, "/*") || strings.Count(text, ":") == 1):
		return fmt.Errorf("%w: not a host as requests have it; write it in lower case and without a port, for example api.example.com", ErrSpec)
	case s == Method && strings.ToUpper(text) != text:
		return fmt.Errorf("%w: not a method; write %s", ErrSpec, strings.ToUpper(text))
	}
	return nil
}

// String returns the name of s in configuration files; "" for none.
func (s Source) String() string { return table[s].name }

// IsField reports whether s is a header field, whose name is that of the origin.
func (s Source) IsField() bool { return table[s].isField }

// IsNamed reports whether s needs the name of a field, which a request may lack.
func (s Source) IsNamed() bool { return table[s].isNamed }

// IsSpelled reports whether clients write the text at s and nobody signs it, so that
// servers may read it in different ways.
func (s Source) IsSpelled() bool { return table[s].isSpelled }

// IsSigned reports whether s is in a token, which must be verified.
func (s Source) IsSigned() bool { return table[s].isSigned }

// IsBody reports whether s is read from the body.
func (s Source) IsBody() bool { return table[s].isBody }

// IsCostly reports whether reading s takes long: it is in the body or signed.
func (s Source) IsCostly() bool { return table[s].isCostly }

// IsLogged reports whether a log may have a value at s in a field of its own.
func (s Source) IsLogged() bool { return table[s].isLogged }

// IsSecret reports whether the values at s are secrets, whatever they are called.
func (s Source) IsSecret() bool { return table[s].isSecret }

// IsAddress reports whether the values at s are addresses and networks.
func (s Source) IsAddress() bool { return table[s].isAddress }

// IsEntry reports whether s is an entry of a descriptor, which no request has.
func (s Source) IsEntry() bool { return s == Descriptor }

// IsConstant reports whether all requests have the same value at s.
func (s Source) IsConstant() bool { return table[s].isConstant }
