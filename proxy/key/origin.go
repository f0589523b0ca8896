package key

import (
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// A Source is the part of a request that a key is read from.
type Source string

// The sources that a key can be read from.
const (
	Header   Source = "header"    // a header field
	Query    Source = "query"     // a query parameter
	Path     Source = "path"      // a {parameter} of the route's path
	Cookie   Source = "cookie"    // a cookie
	Form     Source = "form"      // a field of a form in the body
	JSON     Source = "json"      // a value in a JSON body, by its pointer
	JWT      Source = "jwt"       // a claim of the verified bearer token
	ClientIP Source = "client_ip" // the client's address; for IPv6, its network
	Host     Source = "host"      // the requested host, in lower case
	Method   Source = "method"    // the request method
	Global   Source = "global"    // one key for all requests
)

// An Origin is a Source and the name of the field in it.
type Origin struct {
	Source Source
	// Name is in canonical form for Header, an RFC 6901 pointer for JSON, and
	// empty for ClientIP, Host, Method and Global.
	Name string
}

const origins = "header:NAME, query:NAME, path:NAME, cookie:NAME, form:NAME, json:/POINTER, jwt:CLAIM, client_ip, host, method or global"

// ParseOrigin parses "header:X-Phone", "query:user", "cookie:sid", "form:phone",
// "json:/user/phone", "path:id", "jwt:sub", "client_ip", "host", "method" or "global".
// Errors wrap ErrSpec and contain what to write instead.
func ParseOrigin(s string) (Origin, error) {
	source, name, named := strings.Cut(s, ":")
	o := Origin{Source: Source(source), Name: name}
	switch o.Source {
	case ClientIP, Host, Method, Global:
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
	case Cookie:
		if !httpguts.ValidHeaderFieldName(name) { // both are tokens of RFC 9110
			return Origin{}, fmt.Errorf("%w: %q; name the cookie, for example cookie:session", ErrSpec, s)
		}
		return o, nil
	case Query, Path, Form:
		if name == "" || !printable(name) {
			return Origin{}, fmt.Errorf("%w: %q; name the parameter, for example %s:user", ErrSpec, s, source)
		}
		return o, nil
	case JSON:
		if !validPointer(name) {
			return Origin{}, fmt.Errorf("%w: %q; write a JSON pointer, for example json:/user/phone, with ~1 for a slash and ~0 for a tilde in a name", ErrSpec, s)
		}
		return o, nil
	case JWT:
		if name == "" || !printable(name) {
			return Origin{}, fmt.Errorf("%w: %q; name the claim, for example jwt:sub", ErrSpec, s)
		}
		return o, nil
	}
	return Origin{}, fmt.Errorf("%w: %q; write %s", ErrSpec, s, origins)
}

// String returns o in the syntax of ParseOrigin.
func (o Origin) String() string {
	if o.Name == "" {
		return string(o.Source)
	}
	return string(o.Source) + ":" + o.Name
}

// printable reports whether s has no control characters, which the names of keys must not
// have: see tag.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' })
}
