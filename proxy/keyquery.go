package proxy

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// ErrKeyQuery reports that a question about a key, or a change of it, is not one: a key
// that no limit counts by, a value that no request could carry, a ban without a length.
// The error says what to write instead, and never repeats a value.
var ErrKeyQuery = errors.New("not a question about a key")

// A KeyPair names a key as operators write it: phone=+8613800138000. Key is the name of
// a key of the configuration, or an origin such as header:X-Phone. Value is what a
// request would carry; or KeyID of an entry, "id:...", which stands for a key whose
// value the operator does not know.
type KeyPair struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ParseKeyPair reads KEY=VALUE. Errors wrap ErrKeyQuery.
func ParseKeyPair(text string) (KeyPair, error) {
	name, value, found := strings.Cut(text, "=")
	if !found || name == "" {
		return KeyPair{}, fmt.Errorf("%w: write KEY=VALUE, for example phone=+8613800138000", ErrKeyQuery)
	}
	return KeyPair{name, value}, nil
}

// A KeyQuery names one key, by several pairs if it is joined of several, and which
// limits it is about: those of a route and of a name, or all where these are empty.
type KeyQuery struct {
	Pairs []KeyPair `json:"pairs,omitempty"`
	Route string    `json:"route,omitempty"`
	Limit string    `json:"limit,omitempty"`
}

// A KeyAction is what an operator does to a key.
type KeyAction string

// The actions.
const (
	KeyReset KeyAction = "reset" // what is counted is forgotten, and bans end
	KeyGrant KeyAction = "grant" // so many permits on top, never more than the limit has
	KeyBan   KeyAction = "ban"   // the key has nothing for some time
	KeyUnban KeyAction = "unban" // a ban ends; what is counted stays
)

// A KeyChange is an action on the key that its query names.
type KeyChange struct {
	KeyQuery
	Action  KeyAction `json:"action"`
	For     Span      `json:"for,omitzero"`      // of a ban
	Permits int64     `json:"permits,omitempty"` // of a grant
	Reason  string    `json:"reason,omitempty"`
}

// A Span is a length of time that is written as in the configuration: "1h30m".
type Span time.Duration

// MarshalText writes s in the shortest form.
func (s Span) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what a configuration may say.
func (s *Span) UnmarshalText(text []byte) error {
	d, err := limiter.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%w: a duration needs a unit; write for example 1h", ErrKeyQuery)
	}
	*s = Span(d)
	return nil
}

// String is s as MarshalText writes it.
func (s Span) String() string { return limiter.FormatDuration(time.Duration(s)) }

// change is what the stores are told, or what is wrong with c.
func (c KeyChange) change() (limiter.Change, error) {
	switch c.Action {
	case KeyReset:
		return limiter.Change{Verb: limiter.VerbReset}, nil
	case KeyUnban:
		return limiter.Change{Verb: limiter.VerbBan}, nil
	case KeyBan:
		d := time.Duration(c.For)
		if d <= 0 || limiter.CheckBan(d) != nil {
			return limiter.Change{}, fmt.Errorf("%w: a ban lasts from 1ms to 366d; write for example 1h", ErrKeyQuery)
		}
		return limiter.Change{Verb: limiter.VerbBan, Ban: d}, nil
	case KeyGrant:
		if c.Permits < 1 || c.Permits > limiter.MaxCount {
			return limiter.Change{}, fmt.Errorf("%w: number of permits to grant; write a whole number from 1 to %d", ErrKeyQuery, int64(limiter.MaxCount))
		}
		return limiter.Change{Verb: limiter.VerbGrant, Grant: c.Permits}, nil
	}
	return limiter.Change{}, fmt.Errorf("%w: %q; write reset, grant, ban or unban", ErrKeyQuery, string(c.Action))
}

// given are the pairs by their names; a KeyID stands alone.
func (q KeyQuery) given(prefix int) (key.Given, error) {
	g := key.Given{Texts: map[string]string{}, IPv6Prefix: prefix}
	if len(q.Pairs) == 0 {
		return g, fmt.Errorf("%w: no key is named; write KEY=VALUE, for example phone=+8613800138000", ErrKeyQuery)
	}
	for _, p := range q.Pairs {
		name := key.Canonical(p.Key)
		if _, twice := g.Texts[name]; twice {
			return g, fmt.Errorf("%w: %s is given twice; name each part of a key once", ErrKeyQuery, name)
		}
		g.Texts[name] = p.Value
	}
	return g, nil
}
