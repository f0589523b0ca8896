package key

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"strings"
)

// sumSize is how many bytes of a hash stand for a value: enough that no value meets
// the hash of another, and few enough that a list does not grow by being hashed.
const sumSize = 12

// hashedForm is the head of a list whose lines are hashes, "hashed:KIND:ID", or one
// value that is hashed, "hashed:KIND:ID:HASH".
var hashedForm = regexp.MustCompile(`^hashed:([ks]):([A-Za-z0-9_-]{22})(?::([A-Za-z0-9_-]{16}))?$`)

// A Pepper is what the values of lists are hashed with, so that they can be sent
// and stored where others may read. Under a secret nobody without it can tell from
// a hash what the value was. Under a salt alone whoever sees a hash can try values
// one by one; for phone numbers that is a matter of minutes.
type Pepper struct {
	key  []byte
	head string // "hashed:KIND:ID"
}

// PepperOf is the Pepper of a secret. Its name in a list does not tell the secret.
func PepperOf(secret []byte) Pepper {
	id := keyed(secret, "name of a secret")
	return Pepper{secret, "hashed:k:" + encode(id[:16])}
}

// Salt is the Pepper of 16 bytes, which stand in the list; more are left out.
func Salt(salt []byte) Pepper {
	salt = append(append([]byte{}, salt...), make([]byte, 16)...)[:16]
	return Pepper{salt, "hashed:s:" + encode(salt)}
}

// SaltOf is the salt that some value of text was hashed with.
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

// Conceals reports whether the values of spec can be hashed: networks cannot.
func (s *Spec) Conceals() bool { return s.Of != nil || s.From.Source != ClientIP }

// Conceal is text, a list of values of spec, one a line, with each value hashed.
// What is hashed already stays as it is; comments and what is no value are left out.
func (p Pepper) Conceal(spec *Spec, text string) string {
	var b strings.Builder
	before, headed := newHashes(nil), false
	for line := range strings.Lines(strings.TrimPrefix(text, "\uFEFF")) {
		one := entry(line)
		if one == "" {
			continue
		}
		if before.reads(one) || before.head != "" {
			b.WriteString(one + "\n")
			continue
		}
		if !headed {
			b.WriteString(p.head + "\n")
			headed = true
		}
		if value, err := spec.value(one); err == nil {
			b.WriteString(p.sum(value) + "\n")
		}
	}
	return b.String()
}

// ConcealOne is one value of spec, hashed.
func (p Pepper) ConcealOne(spec *Spec, text string) (string, error) {
	if hashedForm.MatchString(text) {
		return text, nil
	}
	value, err := spec.value(text)
	if err != nil {
		return "", err
	}
	return p.head + ":" + p.sum(value), nil
}

// sum is the hash of a value.
func (p Pepper) sum(value string) string {
	h := keyed(p.key, "value of a list "+value)
	return encode(h[:sumSize])
}

// IsHashed reports whether text is one value that ConcealOne has hashed.
func IsHashed(text string) bool {
	m := hashedForm.FindStringSubmatch(text)
	return m != nil && m[3] != ""
}

// hashes are the values of a list that are hashed.
type hashes struct {
	secrets [][]byte
	peppers []Pepper            // that have been met
	sums    map[string]struct{} // HEAD and HASH
	head    string              // under which lines stand now; "" while they are plain
}

func newHashes(secrets [][]byte) *hashes {
	return &hashes{secrets: secrets, sums: map[string]struct{}{}}
}

// reads reports whether line is a head or a hash; then the lines after a head are
// hashes.
func (h *hashes) reads(line string) bool {
	m := hashedForm.FindStringSubmatch(line)
	if m != nil && m[3] == "" {
		h.head = line
	}
	return m != nil
}

// insert takes a line in that is a head or a hash, or stands below a head.
func (h *hashes) insert(line string) error {
	m := hashedForm.FindStringSubmatch(line)
	head, sum := h.head, line
	switch {
	case m != nil && m[3] == "":
		return h.meet(m)
	case m != nil:
		head, sum = strings.TrimSuffix(line, ":"+m[3]), m[3]
		if err := h.meet(m); err != nil {
			return err
		}
	case len(line) != base64.RawURLEncoding.EncodedLen(sumSize):
		return fmt.Errorf("%w: no hash of a value; push the list again as it was before it was hashed", ErrSpec)
	}
	h.sums[head+sum] = struct{}{}
	return nil
}

// meet finds what the values under a head were hashed with.
func (h *hashes) meet(m []string) error {
	head := "hashed:" + m[1] + ":" + m[2]
	for _, p := range h.peppers {
		if p.head == head {
			return nil
		}
	}
	if m[1] == "s" {
		salt, err := base64.RawURLEncoding.DecodeString(m[2])
		if err != nil {
			return fmt.Errorf("%w: no salt; push the list again as it was before it was hashed", ErrSpec)
		}
		h.peppers = append(h.peppers, Salt(salt))
		return nil
	}
	for _, secret := range h.secrets {
		if p := PepperOf(secret); p.head == head {
			h.peppers = append(h.peppers, p)
			return nil
		}
	}
	return fmt.Errorf("%w: hashed under a secret that is not known here; set it as privacy.previous_secret, or push the list again as it was before it was hashed", ErrSpec)
}

// find is the hash of value as ConcealOne writes it, if value is one of those that
// were hashed.
func (h *hashes) find(value string) (text string, ok bool) {
	if h == nil || len(h.sums) == 0 {
		return "", false
	}
	for _, p := range h.peppers {
		sum := p.sum(value)
		if _, ok := h.sums[p.head+sum]; ok {
			return p.head + ":" + sum, true
		}
	}
	return "", false
}

func keyed(key []byte, text string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	return mac.Sum(nil)
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }
