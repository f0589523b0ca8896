package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// maxWeight bounds how long a rotation can get.
const maxWeight = 1000

// A target is a server, ready to be asked.
type target struct {
	name         string // its URL, for logs
	scheme, host string
	base         string // escaped path without a slash at its end
}

// newTarget checks what the operator wrote.
func newTarget(from Target) (target, error) {
	u := from.URL
	switch {
	case u == nil:
		return target{}, errors.New("a target has no URL")
	case u.Scheme != "http" && u.Scheme != "https":
		return target{}, fmt.Errorf("target %s: write http://HOST or https://HOST", u.Redacted())
	case u.Host == "" || u.Opaque != "":
		return target{}, fmt.Errorf("target %s: no host", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return target{}, fmt.Errorf("target %s: leave out user, query and fragment", u.Redacted())
	case from.Weight < 0 || from.Weight > maxWeight:
		return target{}, fmt.Errorf("target %s: weight %d; write 1 to %d", u, from.Weight, maxWeight)
	}
	return target{name: u.String(), scheme: u.Scheme, host: u.Host, base: strings.TrimRight(u.EscapedPath(), "/")}, nil
}

// address points u at t. The path goes into Opaque, which net/http sends as it
// is: Path would be escaped anew, in a spelling of its own.
func (t *target) address(u *url.URL, path, rawQuery string) {
	u.Scheme, u.Host, u.User = t.scheme, t.host, nil
	u.Path, u.RawPath, u.Opaque = path, "", path
	if path != "*" {
		u.Opaque = t.base + path
	}
	u.RawQuery = rawQuery
}
