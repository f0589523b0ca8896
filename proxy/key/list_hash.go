package key

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// sumSize is the number of bytes of a hash that are kept: enough to avoid collisions, and
// few enough that a hashed list is not longer than the original.
const sumSize = 12

// hashedForm matches the header of a list of hashes, "hashed:KIND:ID", or a single hashed
// value, "hashed:KIND:ID:HASH".
var hashedForm = regexp.MustCompile(`^hashed:([ks]):([A-Za-z0-9_-]{22})(?::([A-Za-z0-9_-]{16}))?$`)

// A Pepper hashes the values of lists, so that they can be sent and stored where others may
// read them. With a secret, values cannot be found from hashes without the secret. With
// only a salt, they can be found by brute force; for phone numbers this takes minutes.
type Pepper struct {
	key  []byte
	head string // "hashed:KIND:ID"
}

// NewPepper returns the Pepper for a secret. Its id in a list does not reveal the secret.
func NewPepper(secret []byte) Pepper {
	id := keyed(secret, "name of a secret")
	return Pepper{secret, "hashed:k:" + encode(id[:16])}
}

// Salt returns the Pepper for a salt of 16 bytes, which is part of the list; further bytes
// are ignored.
func Salt(salt []byte) Pepper {
	salt = append(append([]byte{}, salt...), make([]byte, 16)...)[:16]
	return Pepper{salt, "hashed:s:" + encode(salt)}
}

// SaltOf returns the salt with which a value in text was hashed.
func SaltOf(text string) (p Pepper, ok bool) {
	for line := range strings.Lines(text) {
		if at := strings.Index(line, "hashed:s:"); at >= 0 && len(line) >= at+31 {
			if m := hashedForm.FindStringSubmatch(line[at : at+31]); m != nil {
				salt, err := base64.RawURLEncoding.DecodeString(m[2])
				return Salt(salt), err == nil
			}
		}
	}
	return Pepper{}, false
}

// CanHash reports whether the values of spec can be hashed: networks cannot.
func (s *Spec) CanHash() bool { return s.Of != nil || !s.From.Source.IsAddress() }

// HashList returns text, a list of values of spec with one per line, with each value hashed.
// Hashed values are unchanged; comments and invalid values are omitted.
func (p Pepper) HashList(spec *Spec, text string) string {
	return p.hash(spec, text, func(line string) (value, rest string) { return line, "" })
}

// HashNames is like HashList for a list with names, which are kept.
func (p Pepper) HashNames(spec *Spec, text string) string {
	return p.hash(spec, text, func(line string) (value, rest string) {
		value, _ = cutName(line)
		return value, line[len(value):]
	})
}

// hash hashes what split returns as the value of each line.
func (p Pepper) hash(spec *Spec, text string, split func(line string) (value, rest string)) string {
	var b strings.Builder
	before, headed := newHashes(nil), false
	for line := range lines(text) {
		one, rest := split(line)
		if line == "" {
			continue
		}
		if before.isHashLine(one) || before.head != "" {
			b.WriteString(line + "\n")
			continue
		}
		if !headed {
			b.WriteString(p.head + "\n")
			headed = true
		}
		if value, err := spec.value(strings.TrimSpace(one)); err == nil {
			b.WriteString(p.sum(value) + rest + "\n")
		}
	}
	return b.String()
}

// HashValue returns the hash of one value of spec.
func (p Pepper) HashValue(spec *Spec, text string) (string, error) {
	if hashedForm.MatchString(text) {
		return text, nil
	}
	value, err := spec.value(text)
	if err != nil {
		return "", err
	}
	return p.head + ":" + p.sum(value), nil
}

// sum returns the hash of a value.
func (p Pepper) sum(value string) string {
	h := keyed(p.key, "value of a list "+value)
	return encode(h[:sumSize])
}

// IsHashed reports whether text is a single value hashed by HashValue.
func IsHashed(text string) bool {
	m := hashedForm.FindStringSubmatch(text)
	return m != nil && m[3] != ""
}

// hashes holds the hashed values of a list.
type hashes struct {
	secrets [][]byte
	peppers []Pepper  // found in the list
	sums    textTable // of each the index of its Pepper, in one byte, and HASH
	head    string    // under which lines stand now; "" while they are plain
}

func newHashes(secrets [][]byte) *hashes {
	return &hashes{secrets: secrets}
}

// isHashLine reports whether line is a header or a hash; the lines after a header are hashes.
func (h *hashes) isHashLine(line string) bool {
	if !strings.HasPrefix(line, "hashed:") { // as most; the expression takes longer than all the rest
		return false
	}
	m := hashedForm.FindStringSubmatch(line)
	if m != nil && m[3] == "" {
		h.head = line
	}
	return m != nil
}

// insert adds a line that is a header, or a hash with the number of its name.
func (h *hashes) insert(line string, name uint32) error {
	m := hashedForm.FindStringSubmatch(line)
	head, sum := h.head, line
	switch {
	case m != nil && m[3] == "":
		return h.addHeader(m)
	case m != nil:
		head, sum = strings.TrimSuffix(line, ":"+m[3]), m[3]
		if err := h.addHeader(m); err != nil {
			return err
		}
	case len(line) != base64.RawURLEncoding.EncodedLen(sumSize):
		return fmt.Errorf("%w: not a hash of a value; push the list again as it was before it was hashed", ErrSpec)
	}
	i := slices.IndexFunc(h.peppers, func(p Pepper) bool { return p.head == head })
	if i < 0 {
		return nil // its header was a problem
	}
	if h.sums.insert(string(rune(i))+sum, name) != name {
		return ErrTwice
	}
	return nil
}

// addHeader finds the Pepper for a header.
func (h *hashes) addHeader(m []string) error {
	head := "hashed:" + m[1] + ":" + m[2]
	for _, p := range h.peppers {
		if p.head == head {
			return nil
		}
	}
	if m[1] == "s" {
		salt, err := base64.RawURLEncoding.DecodeString(m[2])
		if err != nil {
			return fmt.Errorf("%w: not a salt; push the list again as it was before it was hashed", ErrSpec)
		}
		h.peppers = append(h.peppers, Salt(salt))
		return nil
	}
	for _, secret := range h.secrets {
		if p := NewPepper(secret); p.head == head {
			h.peppers = append(h.peppers, p)
			return nil
		}
	}
	return fmt.Errorf("%w: hashed with an unknown secret; set it as privacy.previous_secret, or push the list again as it was before it was hashed", ErrSpec)
}

// find returns the hash of value as HashValue writes it and the number of its name, if the list
// contains it.
func (h *hashes) find(value string) (text string, name uint32, ok bool) {
	if h == nil || h.sums.size == 0 {
		return "", 0, false
	}
	for i, p := range h.peppers {
		sum := p.sum(value)
		if name, ok := h.sums.find(string(rune(i)) + sum); ok {
			return p.head + ":" + sum, name, true
		}
	}
	return "", 0, false
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
