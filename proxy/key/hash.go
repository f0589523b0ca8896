package key

import "github.com/weir-proxy/weir/limiter"

// Hash is the key under which the parts that Extract found are counted. With a secret
// it is an HMAC-SHA256: nobody without the secret can tell from the key what the
// parts were, not even by trying all phone numbers. An empty secret is none.
//
// Secret rotation, which is privacy.previous_secret in a configuration, forgets
// nothing that was counted under the secret that is replaced. First all proxies are
// given both. From then on each request claims its limits under both keys, in one
// decision: all are taken or none. What counts under the previous key still counts,
// whether it was taken before the change or by a proxy that has not been changed yet,
// and what is taken now counts under both. Once the longest window of all limits has
// gone by since the last proxy was changed, the new key knows all that the previous
// one does, and the previous secret can be dropped. It costs one more claim for each
// limit meanwhile, and no script, store or migration knows of it.
func Hash(secret string, parts []string) limiter.Key {
	if secret == "" {
		return limiter.KeyOf(parts...)
	}
	return limiter.KeyWithSecret([]byte(secret), parts...)
}
