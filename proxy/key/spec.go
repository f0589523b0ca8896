// Package key makes the keys that limits count under: it takes the texts that
// a request carries, brings different spellings of one value into one form,
// and hashes the result, so that no client's text reaches a store.
package key

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// ErrSpec says that a text in the configuration does not describe a key.
var ErrSpec = errors.New("not a key")

// A Source is the part of a request that a key is read from.
type Source string

// The sources that a key can be read from.
const (
	Header   Source = "header"    // a header field
	Query    Source = "query"     // a query parameter
	Path     Source = "path"      // a {parameter} of the route's path
	ClientIP Source = "client_ip" // the client's address, IPv6 cut to its network
	Global   Source = "global"    // one key for everybody
)

// An Origin is a Source and the name of the field in it.
type Origin struct {
	Source Source
	Name   string // in canonical form for Header; empty for ClientIP and Global
}

// ParseOrigin reads "header:X-Phone", "query:user", "path:id", "client_ip" or
// "global". Errors wrap ErrSpec and say what to write instead.
func ParseOrigin(s string) (Origin, error) {
	source, name, named := strings.Cut(s, ":")
	o := Origin{Source: Source(source), Name: name}
	switch o.Source {
	case ClientIP, Global:
		if named {
			return Origin{}, fmt.Errorf("%w: %q; %s takes no name: write %s", ErrSpec, s, source, source)
		}
		return o, nil
	case Header:
		if !httpguts.ValidHeaderFieldName(name) {
			return Origin{}, fmt.Errorf("%w: %q; name the header field, for example header:X-Phone", ErrSpec, s)
		}
		o.Name = http.CanonicalHeaderKey(name)
		return o, nil
	case Query, Path:
		if name == "" {
			return Origin{}, fmt.Errorf("%w: %q; name the parameter, for example %s:user", ErrSpec, s, source)
		}
		return o, nil
	}
	return Origin{}, fmt.Errorf("%w: %q; write header:NAME, query:NAME, path:NAME, client_ip or global", ErrSpec, s)
}

// String is o as ParseOrigin reads it.
func (o Origin) String() string {
	if o.Name == "" {
		return string(o.Source)
	}
	return string(o.Source) + ":" + o.Name
}

// Missing says what happens when a request does not carry the key.
type Missing string

// What can happen when a key is missing.
const (
	Reject Missing = "reject" // the request is refused with 400
	Skip   Missing = "skip"   // limits on this key do not apply
	Shared Missing = "shared" // all requests without it are counted together
	Use    Missing = "use"    // another key is used instead
)

// A Spec says how to make one key. It is immutable once compiled.
type Spec struct {
	// Name is the key's name under keys:, or its origin when written in place.
	Name string
	// From is where the text comes from. It is the zero Origin when Join is set.
	From Origin
	// Join lists keys that together make this one; it is nil when From is set.
	Join []*Spec
	// Normalize lists the steps that bring different spellings together, in the
	// order they are taken.
	Normalize []Step
	// OnMissing is Reject when empty. It is not consulted when Join is set: then
	// that of the missing part decides.
	OnMissing Missing
	// Instead is the key to use when OnMissing is Use.
	Instead *Spec
}
