package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// maxWeight is the largest weight of a target.
const maxWeight = 1000

const (
	echoHost = "echo"
	// socketHost is the host of a unix socket in URLs, because net/http requires one.
	// The number of the target precedes it. The name cannot exist in the DNS (RFC
	// 6761).
	socketHost = "socket.invalid."
)

// An endpoint is the parsed and validated URL of a target.
type endpoint struct {
	name         string // the URL, for logs
	scheme, host string
	basePath     string // escaped path without a trailing slash
	socket       string // the path of the unix socket, or ""
	authority    string // Host of requests that Weir generates itself, as health checks
}

// newEndpoint validates a target.
func newEndpoint(from Target) (endpoint, error) {
	u := from.URL
	switch {
	case u == nil:
		return endpoint{}, errors.New("a target has no URL")
	case from.Weight < 0 || from.Weight > maxWeight:
		return endpoint{}, fmt.Errorf("target %s: weight %d; write 1 to %d", u.Redacted(), from.Weight, maxWeight)
	case u.Scheme == "unix":
		return newUnixEndpoint(u)
	case u.Scheme != "http" && u.Scheme != "https":
		return endpoint{}, fmt.Errorf("target %s: write http://HOST, https://HOST or unix:/PATH", u.Redacted())
	case u.Host == "" || u.Opaque != "":
		return endpoint{}, fmt.Errorf("target %s: no host", u.Redacted())
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return endpoint{}, fmt.Errorf("target %s: leave out user, query and fragment", u.Redacted())
	}
	base := strings.TrimRight(u.EscapedPath(), "/")
	return endpoint{name: u.String(), scheme: u.Scheme, host: u.Host, basePath: base, authority: u.Host}, nil
}

// newUnixEndpoint validates the URL of a unix socket.
func newUnixEndpoint(u *url.URL) (endpoint, error) {
	if u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/") {
		return endpoint{}, fmt.Errorf("target %s: write unix:/PATH", u.Redacted())
	}
	return endpoint{name: "unix:" + u.Path, scheme: "http", socket: u.Path, authority: "localhost"}, nil
}
