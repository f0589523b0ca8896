package key

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/net/http/httpguts"
)

// An Origin is a Source and the name of the field in it.
type Origin struct {
	Source Source
	// Name is in canonical form for Header, an RFC 6901 pointer for JSON, and
	// empty for ClientIP, Host, Method and Global.
	Name string
}

const origins = "header:NAME, query:NAME, path:NAME, cookie:NAME, form:NAME, json:/POINTER, jwt:CLAIM, " +
	"descriptor:ENTRY, client_ip, host, method or global"

// LongName returns text, or client_ip for ip, which is short for it in configuration files.
func LongName(text string) string {
	if text == "ip" {
		return ClientIP.String()
	}
	return text
}

// ParseOrigin parses "header:X-Phone", "query:user", "cookie:sid", "form:phone",
// "json:/user/phone", "path:id", "jwt:sub", "client_ip", "host", "method" or "global".
// Errors wrap ErrSpec and contain what to write instead.
func ParseOrigin(s string) (Origin, error) {
	source, name, named := strings.Cut(s, ":")
	o := Origin{Source: sourceOf(source), Name: name}
	is := table[o.Source]
	valid := name != "" && printable(name)
	switch o.Source {
	case 0:
		return Origin{}, fmt.Errorf("%w: %q; write %s", ErrSpec, s, origins)
	case Header, Cookie: // both are tokens of RFC 9110
		valid = httpguts.ValidHeaderFieldName(name)
	case JSON:
		valid = valid && jsontext.Pointer(name).IsValid()
	}
	switch {
	case !is.isNamed && named:
		return Origin{}, fmt.Errorf("%w: %q; %s takes no name: write %s", ErrSpec, s, source, source)
	case is.isNamed && !valid:
		return Origin{}, fmt.Errorf("%w: %q; %s", ErrSpec, s, is.naming)
	case o.Source.IsField():
		o.Name = http.CanonicalHeaderKey(name)
	}
	return o, nil
}

// String returns o in the syntax of ParseOrigin.
func (o Origin) String() string {
	if o.Name == "" {
		return o.Source.String()
	}
	return o.Source.String() + ":" + o.Name
}

// HeaderField returns the origin of a header field, whose name is in canonical form.
func HeaderField(name string) Origin { return Origin{Header, name} }

// PathParameter returns the origin of a parameter of the route's path.
func PathParameter(name string) Origin { return Origin{Path, name} }

// Fields returns the header fields without which a value at o is not read as it was sent.
func (o Origin) Fields() []string {
	if o.Source.IsField() {
		return []string{o.Name}
	}
	return table[o.Source].fields
}

// Confused returns the origin in which some servers look for the same name as o, and true
// if there is one: a query parameter and a field of a form.
func (o Origin) Confused() (Origin, bool) {
	other := table[o.Source].confused
	return Origin{other, o.Name}, other != 0
}

// printable reports whether s has no control characters, which the names of keys must not
// have: see tag.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' })
}
