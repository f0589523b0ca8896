package bundle

import (
	"bytes"
	"compress/gzip"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/weir-proxy/weir/proxy/config"
)

// sealedHead is the beginning of an encrypted Bundle.
const sealedHead = "weir sealed bundle\n"

// ErrSecret reports a Bundle that is encrypted with a secret that this machine does not have.
var ErrSecret = errors.New("encrypted with another privacy.hash_secret than that in the file of this node; " +
	"write there that of the other nodes, or the former one as privacy.previous_secret, and restart")

// A Seal packs Bundles for where others can read them, and opens them. If the machine has a privacy.hash_secret, they are
// encrypted with a key that is derived from it, and their versions tell nothing of their contents. Bundles that are not
// encrypted are opened, too.
type Seal struct {
	versionKey []byte        // nil without a secret
	current    cipher.AEAD   // nil without a secret
	all        []cipher.AEAD // of the secret and of the former one
}

// NewSeal returns the Seal for the secrets of a machine.
func NewSeal(p config.Privacy) Seal {
	var s Seal
	if p.HashSecret != "" {
		s.versionKey = derive(p.HashSecret, "weir: versions of pushed configurations")
		s.current = newAEAD(p.HashSecret)
		s.all = append(s.all, s.current)
	}
	if p.Previous != "" {
		s.all = append(s.all, newAEAD(p.Previous))
	}
	return s
}

// newAEAD returns the cipher for a secret.
func newAEAD(secret string) cipher.AEAD {
	block, err := aes.NewCipher(derive(secret, "weir: encryption of pushed configurations"))
	if err != nil {
		panic(err) // the key has a length of AES
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(err) // AES has the block size of GCM
	}
	return aead
}

// derive returns a key of 256 bits for a purpose.
func derive(secret, purpose string) []byte {
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, purpose, 32)
	if err != nil {
		panic(err) // it is shorter than HKDF's limit
	}
	return key
}

// Sign returns b with its version for this machine's secret; see Bundle.Hash.
func (s Seal) Sign(b Bundle) Bundle {
	b.version = ""
	if s.versionKey != nil {
		mac := hmac.New(sha256.New, s.versionKey)
		b.writeTo(mac)
		b.version = hex.EncodeToString(mac.Sum(nil))
	}
	return b
}

// Pack compresses b, which may hold long lists, and encrypts it.
func (s Seal) Pack(b Bundle) []byte {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if err := errors.Join(json.NewEncoder(w).Encode(b), w.Close()); err != nil {
		panic(err) // writing to memory cannot fail
	}
	if s.current == nil {
		return packed.Bytes()
	}
	return append([]byte(sealedHead), s.current.Seal(nil, nil, packed.Bytes(), []byte(b.Hash()))...) // #nosec G407 -- the AEAD makes a random nonce
}

// Open reads what Pack has made of a Bundle with that version. The error wraps ErrSecret or ErrInvalid.
func (s Seal) Open(packed []byte, version string) (b Bundle, err error) {
	if sealed, ok := bytes.CutPrefix(packed, []byte(sealedHead)); ok {
		if packed = s.decrypt(sealed, version); packed == nil {
			return b, ErrSecret
		}
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return b, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	const most = 8 * MaxSize // of JSON, which escapes
	if err := json.NewDecoder(io.LimitReader(r, most)).Decode(&b); err != nil {
		return b, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	b.version = version
	return b, nil
}

// decrypt returns nil if none of the secrets fits.
func (s Seal) decrypt(sealed []byte, version string) []byte {
	for _, aead := range s.all {
		if packed, err := aead.Open(nil, nil, sealed, []byte(version)); err == nil {
			return packed
		}
	}
	return nil
}

// Exposed returns the names of the files of b whose values of sensitive keys can be read where Pack's result can; c is b
// as it was loaded.
func (s Seal) Exposed(c *config.Config) (files []string) {
	if s.current == nil {
		for _, v := range c.Values() {
			if v.Spec.IsConcealed() && !v.IsVariable() && !slices.Contains(files, v.Where()) {
				files = append(files, v.Where())
			}
		}
	}
	return files
}
