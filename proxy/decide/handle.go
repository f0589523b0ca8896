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

// A signer makes and checks handles. A handle is the expiry and what the outcome needs, for each descriptor
// of a call or for the one request, with a MAC over all (HMAC-SHA256): nobody without the secret can make one, change one, or extend its life. It
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

// sign returns a handle for pendings that is valid until then.
func (s signer) sign(pendings [][]byte, until time.Time) string {
	b := binary.BigEndian.AppendUint64(nil, uint64(until.UnixMilli()))
	for _, p := range pendings {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	return base64.RawURLEncoding.EncodeToString(s.appendMAC(b))
}

// open returns what the outcome of a handle needs.
func (s signer) open(handle string, now time.Time) (pendings [][]byte, err error) {
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
	for rest := signed[8:]; len(rest) > 0; {
		n, size := binary.Uvarint(rest)
		if size <= 0 || n > uint64(len(rest)-size) {
			return nil, errForged // of another version
		}
		pendings, rest = append(pendings, rest[size:size+int(n)]), rest[size+int(n):]
	}
	return pendings, nil
}

// appendMAC appends the MAC of b.
func (s signer) appendMAC(b []byte) []byte {
	mac := hmac.New(sha256.New, s.secret)
	mac.Write([]byte("weir decide handle\x00"))
	mac.Write(b)
	return mac.Sum(b)
}
