package decide

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"time"
)

var (
	errForged  = errors.New("this is not a handle that this listener gave")
	errExpired = errors.New("the time for this outcome is over")
)

// A signer makes and checks handles. A handle is the expiry and what the outcome needs, with a MAC over
// both (HMAC-SHA256): nobody without the secret can make one, change one, or extend its life. It
// is text of the alphabet of base64url, so that it needs no escaping in a URL.
type signer struct{ secret []byte }

// newSigner returns a signer with this secret. An empty one is replaced by a random one.
func newSigner(secret string) signer {
	if secret != "" {
		return signer{[]byte(secret)}
	}
	random := make([]byte, sha256.Size)
	_, _ = rand.Read(random) // never fails
	return signer{random}
}

// sign returns a handle for pending that is valid until then.
func (s signer) sign(pending []byte, until time.Time) string {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(pending)+sha256.Size), uint64(until.UnixMilli()))
	b = append(b, pending...)
	return base64.RawURLEncoding.EncodeToString(s.appendMAC(b))
}

// open returns what the outcome of a handle needs.
func (s signer) open(handle string, now time.Time) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(handle)
	if err != nil || len(b) < 8+sha256.Size {
		return nil, errForged
	}
	signed := b[: len(b)-sha256.Size : len(b)-sha256.Size]
	if !hmac.Equal(s.appendMAC(signed), b) {
		return nil, errForged
	}
	if now.UnixMilli() > int64(binary.BigEndian.Uint64(signed)) {
		return nil, errExpired
	}
	return signed[8:], nil
}

// appendMAC appends the MAC of b.
func (s signer) appendMAC(b []byte) []byte {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte("weir decide handle\x00"))
	mac.Write(b)
	return mac.Sum(b)
}
