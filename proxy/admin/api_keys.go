package admin

import (
	"context"

	"github.com/weir-proxy/weir/proxy"
)

// A KeyAction is what is done to a key and needs no more said: reset and unban.
type KeyAction struct {
	proxy.KeyQuery
	Reason string `json:"reason,omitempty"` // for the audit trail
}

// A KeyGrant gives a key permits.
type KeyGrant struct {
	proxy.KeyQuery
	Permits int64  `json:"permits"`
	Reason  string `json:"reason,omitempty"`
}

// A KeyBan has a key refused.
type KeyBan struct {
	proxy.KeyQuery
	For    proxy.Span `json:"for"`
	Reason string     `json:"reason,omitempty"`
}

// change does what needs no more said.
func (o Options) change(a proxy.KeyAction) func(context.Context, KeyAction) (proxy.KeyResult, error) {
	return func(ctx context.Context, k KeyAction) (proxy.KeyResult, error) {
		return o.Change(ctx, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: a, Reason: k.Reason})
	}
}

func (o Options) grant(ctx context.Context, k KeyGrant) (proxy.KeyResult, error) {
	return o.Change(ctx, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: proxy.KeyGrant, Permits: k.Permits, Reason: k.Reason})
}

func (o Options) ban(ctx context.Context, k KeyBan) (proxy.KeyResult, error) {
	return o.Change(ctx, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: proxy.KeyBan, For: k.For, Reason: k.Reason})
}
