package proxy

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"

	"github.com/weir-proxy/weir/limiter"
)

// keyIDForm is a KeyID: what the log calls the key, and the key itself, enciphered.
var keyIDForm = regexp.MustCompile(`^id:([0-9a-f]{12})-([0-9a-f]{32})$`)

// hashForm is what the log calls a key, as a value.
var hashForm = regexp.MustCompile(`^hash:([0-9a-f]{12})$`)

// hashAlone is what the log calls a key.
var hashAlone = regexp.MustCompile(`^[0-9a-f]{12}$`)

// NamesKey reports whether text is what the log calls some key, or its id: names that
// may go where keys may not.
func NamesKey(text string) bool { return hashAlone.MatchString(text) || keyIDForm.MatchString(text) }

// keyID is a name for k that operators can act by although they do not know what the
// client sent, and that tells nobody what that was: k under AES with a key made of the
// log's salt, which all nodes of a cluster share. Whoever has k itself could find out a
// phone number by trying all. It holds as long as the salt does.
func (r *redactor) keyID(k limiter.Key) string {
	var out limiter.Key
	r.cipher().Encrypt(out[:], k[:])
	return "id:" + r.key(k) + "-" + out.String()
}

// readKeyID reads what keyID writes; found says whether text is such a name at all.
func (r *redactor) readKeyID(text string) (k limiter.Key, found bool, err error) {
	m := keyIDForm.FindStringSubmatch(text)
	if m == nil {
		return k, false, nil
	}
	raw, err := hex.DecodeString(m[2])
	if err != nil {
		return k, true, err
	}
	r.cipher().Decrypt(k[:], raw) // a key is as long as a block
	if r.key(k) != m[1] {
		return k, true, fmt.Errorf("%w: this id is from another cluster, or from before its salt was lost; look the key up again", ErrKeyQuery)
	}
	return k, true, nil
}

// cipher is that of the salt.
func (r *redactor) cipher() cipher.Block {
	salt := r.salt()
	secret := sha256.Sum256(append([]byte("id of a key"), salt[:]...))
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // the secret has a right length
	}
	return block
}
