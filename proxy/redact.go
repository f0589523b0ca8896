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
)

// keyDigits is how much of a key's hash is logged.
const keyDigits = 12

// Salt makes the hashes in a log useless to those who try all phone numbers.
type Salt [32]byte

// NewSalt makes one that nobody can guess.
func NewSalt() (s Salt) {
	_, _ = rand.Read(s[:]) // never fails
	return s
}

// A redactor says what of a request people may read in logs and alerts.
type redactor struct {
	privacy config.Privacy
	salt    func() Salt // of hashes where there is no secret
}

// key is what stands for a key: with a secret the beginning of its name in the store,
// so that it can be found there. Without one, whoever reads that could find out what a
// client sent by trying, so it is hashed once more, under the salt.
func (r *redactor) key(k limiter.Key) string {
	if r.privacy.HashSecret != "" {
		return k.String()[:keyDigits]
	}
	return r.salted(k[:])
}

// salted is the beginning of a hash of text, at most 256 bytes, that says nothing
// without the salt.
func (r *redactor) salted(text []byte) string {
	var space [len(Salt{}) + 256]byte
	salt := r.salt()
	sum := sha256.Sum256(append(append(space[:0], salt[:]...), text...))
	return hex.EncodeToString(sum[:keyDigits/2])
}

const (
	// shownBits4 and shownBits6 are how much of an address tells of a network and not
	// of a person.
	shownBits4 = 24
	shownBits6 = 48
)

// client is what stands for the client's address; "" for nothing.
func (r *redactor) client(x *exchange) string {
	switch r.privacy.LogClient {
	case config.ClientNone:
		return ""
	case config.ClientNetwork:
		return shortened(x.client.addr)
	case config.ClientHashed:
		if secret := r.privacy.HashSecret; secret != "" {
			return limiter.KeyWithSecret([]byte(secret), "log", x.client.network.String()).String()[:keyDigits]
		}
		return r.salted([]byte(x.client.network.String()))
	}
	return x.client.addr.String()
}

// shownAddress is the address or network of a key as people may see it, by the same
// rule; "" for nothing.
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
		return shortened(addr)
	}
	return ""
}

// shortened is the network that addr is in.
func shortened(addr netip.Addr) string {
	bits := shownBits4
	if addr.Is6() {
		bits = shownBits6
	}
	network, err := addr.Prefix(bits)
	if err != nil {
		return "" // no address at all
	}
	return network.String()
}

// logKey is what logKey are shown of a key: what stands for it, and, if it is
// sensitive, itself, masked.
func (x *exchange) logKey(k limiter.Key) (hash, masked string) {
	if i := slices.IndexFunc(x.extracted.keys, func(c extractedKey) bool { return !c.skip && (c.Key == k || c.previous == k) }); i >= 0 {
		masked = x.extracted.keys[i].shown
	}
	return x.generation.redact.key(k), masked
}

// redactedPath is the path  to read. A parameter that is a key is hidden; where the
// route wants so, each parameter is, and whatever else might tell of a person; and
// of a path that no route matches nobody knows what it holds.
func (x *exchange) redactedPath() string {
	if x.route == nil {
		return withoutPersons(x.request.Path)
	}
	path, all := x.request.Path, x.route.redacts()
	for name, value := range x.request.Params() {
		if x.route.hides(name) {
			path = strings.Replace(path, "/"+value, "/*", 1)
		}
	}
	if all {
		return withoutPersons(path)
	}
	return path
}

// hides reports whether a parameter of the path is not shown.
func (r *route) hides(name string) bool {
	return slices.Contains(r.hidden, name) || r.redacts() && name != "*"
}

// redactedURL is the URL of a page  to read: without a query, and of its path what
// tells of nobody. Of what is none only the beginning is shown.
func redactedURL(text string) string {
	text, _, _ = strings.Cut(text, "?")
	text, _, _ = strings.Cut(text, "#")
	scheme, rest, is := strings.Cut(text, "://")
	if !is {
		return withoutPersons(text)
	}
	host, path, _ := strings.Cut(rest, "/")
	if _, after, login := strings.Cut(host, "@"); login {
		host = after
	}
	return scheme[:min(len(scheme), maxSegment)] + "://" + host[:min(len(host), maxPath)] + withoutPersons("/"+path)
}

const (
	// maxFieldLength is how much of a field of the header is shown.
	maxFieldLength = 512
	// maxDigits is how many digits a segment of a path may have that is shown: a
	// version or a year, but no phone number.
	maxDigits = 4
	// maxSegment is how long it may be, in bytes: longer ones are tokens.
	maxSegment = 64
	// maxPath is how much of a path is shown that nobody has asked for.
	maxPath = 256
)

// withoutPersons is path with a * for each segment that might be a phone number, an
// address or a token.
func withoutPersons(path string) string {
	var b strings.Builder
	for segment := range strings.SplitAfterSeq(path[:min(len(path), maxPath)], "/") {
		text, slash := strings.CutSuffix(segment, "/")
		if personal(text) {
			text = "*"
		}
		b.WriteString(text)
		if slash {
			b.WriteByte('/')
		}
	}
	return b.String()
}

// personal reports whether a segment might tell of a person.
func personal(segment string) bool {
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
