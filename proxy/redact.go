package proxy

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
	"github.com/weir-proxy/weir/proxy/limit"
)

// logKeyBytes is the number of bytes of a key's hash that are logged, and keyDigits that of their
// hexadecimal digits.
const (
	logKeyBytes = 6
	keyDigits   = 2 * logKeyBytes
)

// Salt prevents that hashed phone numbers in a log are found by brute force.
type Salt [32]byte

// NewSalt returns a random salt.
func NewSalt() (s Salt) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// A redactor determines which data of a request appears in logs and alerts.
type redactor struct {
	privacy config.Privacy
	salt    func() Salt // used for hashes if there is no secret
}

// KeyHash returns the name of a key in the log. With a secret, it is the beginning of the key's name in
// the store, so that the key can be found there. Without one, that could be reversed by brute
// force, so it is hashed again with the salt.
func (r *redactor) KeyHash(k limiter.Key) string {
	id := r.keyBytes(k)
	return hex.EncodeToString(id[:])
}

// keyBytes returns the bytes of which key has the hexadecimal digits.
func (r *redactor) keyBytes(k limiter.Key) [logKeyBytes]byte {
	if r.privacy.HashSecret != "" {
		return [logKeyBytes]byte(k[:])
	}
	return r.saltedHash(k[:])
}

// saltedHash returns the beginning of a salted hash of text, which has at most 256 bytes.
func (r *redactor) saltedHash(text []byte) [logKeyBytes]byte {
	var space [len(Salt{}) + 256]byte
	salt := r.salt()
	sum := sha256.Sum256(append(append(space[:0], salt[:]...), text...))
	return [logKeyBytes]byte(sum[:])
}

const (
	// networkBits4 and networkBits6 are the prefix lengths of addresses that identify a network but not
	// a person.
	networkBits4 = 24
	networkBits6 = 48
)

// client returns the client's address for the log; "" if it is not logged, or nobody knows it: Envoy's
// descriptors do not name a client.
func (r *redactor) client(x *exchange) string {
	if !x.client.addr.IsValid() {
		return ""
	}
	switch r.privacy.LogClient {
	case config.ClientNone:
		return ""
	case config.ClientNetwork:
		return networkOf(x.client.addr)
	case config.ClientHashed:
		if secret := r.privacy.HashSecret; secret != "" {
			return limiter.KeyWithSecret([]byte(secret), "log", x.client.network.String()).String()[:keyDigits]
		}
		id := r.saltedHash([]byte(x.client.network.String()))
		return hex.EncodeToString(id[:])
	}
	return x.client.addr.String()
}

// shownAddress returns the address or network of a key for operators, by the same rule; "" if it is
// not shown.
func (r *redactor) shownAddress(text string) string {
	switch r.privacy.LogClient {
	case config.ClientFull:
		return text
	case config.ClientNetwork:
		address, _, _ := strings.Cut(text, "/")
		addr, err := netip.ParseAddr(address)
		if err != nil {
			return ""
		}
		return networkOf(addr)
	}
	return ""
}

// networkOf returns the network of addr.
func networkOf(addr netip.Addr) string {
	bits := networkBits4
	if addr.Is6() {
		bits = networkBits6
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return "" // not a valid address
	}
	return network.String()
}

// LogKey returns the name of a key in the log and, if the key is sensitive, its masked value.
func (x *exchange) LogKey(k limiter.Key) (hash, masked string) {
	if i := slices.IndexFunc(x.extracted.keys, func(c limit.Key) bool { return !c.Skip && (c.Key == k || c.Previous == k) }); i >= 0 {
		masked = x.extracted.keys[i].Masked
	}
	return x.generation.redact.KeyHash(k), masked
}

// redactedPath returns the path for the log. Parameters that are keys are hidden. If the route
// redacts personal data, all parameters are hidden, and so are other segments that may be personal.
// The same applies to paths that no route matches, because nothing is known about their content.
func (x *exchange) redactedPath() string {
	if x.route == nil {
		return hidePersonal(x.request.Path)
	}
	path, all := x.request.Path, x.route.redactsPaths()
	if len(x.route.keyParams) > 0 || all {
		var b strings.Builder
		x.request.Without(x.route.hidesParam, func(part string) { b.WriteString(part) })
		path = b.String()
	}
	if all {
		return hidePersonal(path)
	}
	return path
}

// hidesParam reports whether a path parameter is hidden.
func (r *route) hidesParam(name string) bool {
	return slices.Contains(r.keyParams, name) || r.redactsPaths() && name != "*"
}

// redactedURL returns a URL for the log: without user, query and fragment, and without path
// segments that may be personal. If text is not a URL, only its beginning is returned.
func redactedURL(text string) string {
	text, _, _ = strings.Cut(text, "?")
	text, _, _ = strings.Cut(text, "#")
	scheme, rest, is := strings.Cut(text, "://")
	if !is {
		return hidePersonal(text)
	}
	host, path, _ := strings.Cut(rest, "/")
	host = host[strings.LastIndexByte(host, '@')+1:] // a password may have one too
	return scheme[:min(len(scheme), maxSegment)] + "://" + host[:min(len(host), maxPath)] + hidePersonal("/"+path)
}

const (
	// maxFieldLength is the number of bytes of a header field that are logged.
	maxFieldLength = 512
	// maxDigits is the number of digits up to which a path segment is shown: a version or a year
	// has no more, a phone number does.
	maxDigits = 4
	// maxSegment is the length in bytes up to which a segment is shown; longer ones may be tokens.
	maxSegment = 64
	// maxPath is the number of bytes shown of a path that matches no route.
	maxPath = 256
)

// hidePersonal returns path with a * for each segment that may be a phone number, an address or a
// token.
func hidePersonal(path string) string {
	segments := strings.Split(path[:min(len(path), maxPath)], "/")
	for i, s := range segments {
		if isPersonal(s) {
			segments[i] = "*"
		}
	}
	return strings.Join(segments, "/")
}

// HidePersonal is hidePersonal, for decisions.Names.
func (r *redactor) HidePersonal(path string) string { return hidePersonal(path) }

// isPersonal reports whether a segment may be personal data.
func isPersonal(segment string) bool {
	digits := 0
	for i := range len(segment) {
		switch c := segment[i]; {
		case '0' <= c && c <= '9':
			digits++
		case c == '@', c == '%', c == '+':
			return true
		}
	}
	return digits > maxDigits || len(segment) > maxSegment
}
