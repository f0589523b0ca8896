package key

import (
	"bytes"
	"slices"

	"github.com/weir-proxy/weir/limiter"
)

// A Keyer hashes what Extract found. The zero Keyer hashes without a secret.
//
// A secret is replaced without forgetting what was counted under it like this.
// First all proxies are given both, the new one first. From then on each
// request claims its limits under Key and under each of Former, in one
// decision: all are taken or none. What counts under the former key still
// counts, whether it was taken before the change or by a proxy that has not
// been changed yet, and what is taken now counts under both. Once the longest
// window of all limits has gone by since the last proxy was changed, the new
// key knows all that the former does, and the former secret can be dropped. It
// costs one more claim for each limit meanwhile, and no script, store or
// migration knows of it.
type Keyer struct {
	secrets [][]byte
}

// NewKeyer returns a Keyer for the secret in use, followed by those it replaces.
// An empty secret is none: keys are then hashed without one, as before the
// first was introduced. A secret listed twice counts once.
func NewKeyer(secrets ...[]byte) Keyer {
	var k Keyer
	for _, s := range secrets {
		if !slices.ContainsFunc(k.secrets, func(known []byte) bool { return bytes.Equal(known, s) }) {
			k.secrets = append(k.secrets, bytes.Clone(s))
		}
	}
	return k
}

// Key is the key of parts under the secret in use.
func (k Keyer) Key(parts []string) limiter.Key {
	if len(k.secrets) == 0 {
		return limiter.KeyOf(parts...)
	}
	return hash(k.secrets[0], parts)
}

// Former appends to keys those of parts under the secrets that are being
// replaced; none unless some are.
func (k Keyer) Former(keys []limiter.Key, parts []string) []limiter.Key {
	if len(k.secrets) < 2 {
		return keys
	}
	for _, secret := range k.secrets[1:] {
		keys = append(keys, hash(secret, parts))
	}
	return keys
}

func hash(secret []byte, parts []string) limiter.Key {
	if len(secret) == 0 {
		return limiter.KeyOf(parts...)
	}
	return limiter.KeyWithSecret(secret, parts...)
}
