package upstream

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// maxWeight bounds how long a rotation can get.
const maxWeight = 1000

const (
	echoHost = "echo"
	// socketHost stands for a socket where net/http wants a host; the number of
	// the target follows. No name in the domain name system ends so.
	socketHost = "socket.invalid."
)

// An endpoint is a server, ready to be asked.
type endpoint struct {
	name         string // its URL, for logs
	scheme, host string
	basePath     string // escaped path without a slash at its end
	socket       string // the path of its unix socket, "" if it has none
	authority    string // what it is called in a request that is ours
}

// newEndpoint checks what the operator wrote.
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

// newUnixEndpoint checks the path of a unix socket.
func newUnixEndpoint(u *url.URL) (endpoint, error) {
	if u.Host != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !strings.HasPrefix(u.Path, "/") {
		return endpoint{}, fmt.Errorf("target %s: write unix:/PATH", u.Redacted())
	}
	return endpoint{name: "unix:" + u.Path, scheme: "http", socket: u.Path, authority: "localhost"}, nil
}
