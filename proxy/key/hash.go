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
