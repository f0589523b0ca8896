package admin

import (
	"context"

	"github.com/weir-proxy/weir/proxy"
)

// A KeyAction is an action on a key without further parameters: reset and unban.
type KeyAction struct {
	proxy.KeyQuery
	Reason  string `json:"reason,omitempty"`  // for the audit trail
	Version string `json:"version,omitempty"` // change nothing if another operator has changed the key since this KeyState.Version
}

// A KeyGrant grants permits to a key.
type KeyGrant struct {
	proxy.KeyQuery
	Permits int64  `json:"permits"`
	Reason  string `json:"reason,omitempty"`
	Version string `json:"version,omitempty"`
}

// A KeyBan bans a key.
type KeyBan struct {
	proxy.KeyQuery
	For     proxy.Span `json:"for"`
	Reason  string     `json:"reason,omitempty"`
	Version string     `json:"version,omitempty"`
}

// change returns a handler for an action without further parameters.
func (o Options) change(a proxy.KeyAction) func(context.Context, KeyAction) (proxy.KeyResult, error) {
	return func(ctx context.Context, k KeyAction) (proxy.KeyResult, error) {
		return o.ChangeSince(ctx, k.Version, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: a, Reason: k.Reason})
	}
}

func (o Options) grant(ctx context.Context, k KeyGrant) (proxy.KeyResult, error) {
	return o.ChangeSince(ctx, k.Version, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: proxy.KeyGrant, Permits: k.Permits, Reason: k.Reason})
}

func (o Options) ban(ctx context.Context, k KeyBan) (proxy.KeyResult, error) {
	return o.ChangeSince(ctx, k.Version, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: proxy.KeyBan, For: k.For, Reason: k.Reason})
}
