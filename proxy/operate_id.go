package proxy

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/decisions"
	"github.com/weir-proxy/weir/proxy/key"
)

// keyIDForm matches a KeyID: the hash of the key in the log, and the encrypted key.
var keyIDForm = regexp.MustCompile(`^id:([0-9a-f]{12})-([0-9a-f]{32})$`)

// hashForm matches the hash of a key in the log, written as a value.
var hashForm = regexp.MustCompile(`^hash:([0-9a-f]{12})$`)

// hashAlone matches the hash of a key in the log.
var hashAlone = regexp.MustCompile(`^[0-9a-f]{12}$`)

// NamesKey reports whether text is the hash of a key in the log, or a key id. Both may be shown
// where keys must not be.
func NamesKey(text string) bool { return hashAlone.MatchString(text) || keyIDForm.MatchString(text) }

// KeyID returns an identifier of k with which operators can query and change the key without
// knowing its value. It is k encrypted by AES with a secret derived from the log's salt, which all
// nodes of a cluster share. It does not reveal the value: only with k itself could a phone number
// be found by brute force. It is valid as long as the salt.
func (r *redactor) KeyID(k limiter.Key) string {
	var out limiter.Key
	r.cipher().Encrypt(out[:], k[:])
	return "id:" + r.KeyHash(k) + "-" + out.String()
}

// readKeyID decrypts a key id. found reports whether text has the form of one.
func (r *redactor) readKeyID(text string) (k limiter.Key, found bool, err error) {
	m := keyIDForm.FindStringSubmatch(text)
	if m == nil {
		return k, false, nil
	}
	raw, err := hex.DecodeString(m[2])
	if err != nil {
		return k, true, err
	}
	r.cipher().Decrypt(k[:], raw) // a key has the size of one block
	if r.KeyHash(k) != m[1] {
		return k, true, fmt.Errorf("%w: this id is from another cluster, or from before its salt was lost; look the key up again", ErrKeyQuery)
	}
	return k, true, nil
}

// cipher returns the block cipher derived from the salt.
func (r *redactor) cipher() cipher.Block {
	salt := r.salt()
	secret := sha256.Sum256(append([]byte("id of a key"), salt[:]...))
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		panic(err) // the length of the secret is valid
	}
	return block
}

// findTargets returns the limits selected by q. A key that is named by its id is completed by what this
// node remembers of it.
func (p *Proxy) findTargets(g *generation, q KeyQuery) ([]keyTarget, error) {
	targets, err := g.findTargets(q, p.keyByHash)
	for i := range targets {
		t := &targets[i]
		if t.byID {
			p.complete(g, t)
		}
		if d, found := p.assignment(t); found {
			t.assign(d)
			continue
		}
		if t.limit.Plan != nil && t.limit.Plan.Name != nil && !t.overridden {
			p.findPlan(g, t)
		}
	}
	return targets, err
}

// findPlan sets the plan that the last request known to this node had, where each request says its plan.
func (p *Proxy) findPlan(g *generation, t *keyTarget) {
	hash := g.redact.KeyHash(t.key)
	for _, d := range p.Decisions(decisions.Query{Route: t.limit.Route, Limit: t.limit.Name, Key: hash, N: 1}) {
		for _, l := range d.Limits {
			if l.Limit == t.limit.Name && l.Hash == hash {
				t.setPlan(l.Plan)
				return
			}
		}
	}
	t.planUnknown = true
}

// complete adds to t, which was named by an id, what the value of the key determines: the masked text, and
// the rates of an override. The value is that of a recent request on this node; if there was none, or if
// it was too long to be kept, t stays as the id alone determines it.
func (p *Proxy) complete(g *generation, t *keyTarget) {
	l, found := p.shared.observer.LabelOf(t.key, t.limit.top)
	if !found {
		return
	}
	leaves, texts := t.spec.Components(), l.Texts()
	t.masked, t.logged = l.Masked(g.display(), t.spec.Shapes()), l.Masked(g.logDisplay(), t.spec.Shapes())
	given := key.Input{Texts: map[string]string{}, IPv6Prefix: g.config.ClientIP.IPv6Prefix}
	for i := range min(len(leaves), len(texts)) {
		given.Texts[leaves[i].Name] = texts[i]
	}
	same := keyTarget{limit: t.limit, windows: t.limit.windows}
	if found, err := g.matchValue(&same, given); found && err == nil && same.key == t.key {
		*t = same
	}
}
