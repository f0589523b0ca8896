package key

import "github.com/weir-proxy/weir/limiter"

// Hash returns the key under which the parts found by Extract are counted. With a secret it
// is an HMAC-SHA256: without the secret, the parts cannot be found from the key by brute
// force. An empty secret means none.
//
// Secret rotation (privacy.previous_secret in the configuration) keeps all counts. First,
// all proxies get both secrets. From then on each request claims its limits under both keys
// in one decision: all are granted, or none is taken. So permits count under the previous
// key, whether they were taken before the change or by a proxy that has not been changed
// yet, and new permits count under both. When the longest window of all limits has passed
// since the last proxy was changed, the new keys have all counts, and the previous secret
// can be removed. Meanwhile each limit costs one more claim; scripts and stores are not
// affected.
func Hash(secret string, parts []string) limiter.Key {
	if secret == "" {
		return limiter.KeyOf(parts...)
	}
	return limiter.KeyWithSecret([]byte(secret), parts...)
}

// maxMemo is the length of the longest parts that a Memo remembers.
const maxMemo = 128

// A Memo remembers the last key that it has hashed: most clients have one, and send many requests over a connection.
// The zero Memo is ready for use. It must not be used concurrently.
type Memo struct {
	secret string
	parts  []byte // each one behind its length
	missed uint8  // keys that were not remembered
	limiter.Key
}

// Hash is the function Hash.
func (m *Memo) Hash(secret string, parts []string) limiter.Key {
	if m.secret == secret && m.remembers(parts) {
		return m.Key
	}
	m.missed++
	if m.missed%8 != 1 { // remembering is not free, and in vain if all keys differ
		return Hash(secret, parts)
	}
	m.secret, m.parts, m.Key = secret, m.parts[:0], Hash(secret, parts)
	for _, p := range parts {
		if len(m.parts)+len(p) >= maxMemo {
			m.parts = m.parts[:0]
			break
		}
		m.parts = append(append(m.parts, byte(len(p))), p...)
	}
	return m.Key
}

// remembers reports whether the last key was that of these parts.
func (m *Memo) remembers(parts []string) bool {
	rest := m.parts
	for _, p := range parts {
		if len(rest) <= len(p) || int(rest[0]) != len(p) || string(rest[1:1+len(p)]) != p {
			return false
		}
		rest = rest[1+len(p):]
	}
	return len(rest) == 0 && len(m.parts) > 0
}
