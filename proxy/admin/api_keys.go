package admin

import (
	"context"

	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/directive"
)

// A KeyAction is an action on a key without further parameters: reset, unban and unplan.
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

// A KeyPlan assigns a plan to a key.
type KeyPlan struct {
	proxy.KeyQuery
	Plan    string     `json:"plan"`
	For     proxy.Span `json:"for"`
	Reason  string     `json:"reason,omitempty"`
	Version string     `json:"version,omitempty"`
}

// Plans are the plans that operators have assigned to keys.
type Plans struct {
	Keys []AssignedPlan `json:"keys"`
}

// An AssignedPlan is the plan of a key.
type AssignedPlan struct {
	directive.Directive
	ID string `json:"id"` // the key id, see proxy.KeyPair
}

// Bans are the networks that are banned, by network.
type Bans struct {
	Networks []directive.Directive `json:"networks"`
}

// A MaintenanceChange begins or ends maintenance.
type MaintenanceChange struct {
	On     bool       `json:"on"`
	Route  string     `json:"route,omitempty"` // empty for all routes
	For    proxy.Span `json:"for,omitzero"`    // until it is ended if it is left out
	Reason string     `json:"reason,omitempty"`
}

// Maintenance is what is under maintenance.
type Maintenance struct {
	On []directive.Directive `json:"on"`
	// Everywhere reports whether all nodes know. While Redis is unreachable, a change holds on the node that
	// was asked, and on all when Redis is back.
	Everywhere bool `json:"everywhere"`
	// Behind are the nodes that have not confirmed the change, although all nodes will follow.
	Behind []string `json:"behind,omitempty"`
}

// Where says on which nodes a change of it holds.
func (m Maintenance) Where() string {
	switch {
	case len(m.Behind) > 0:
		return proxy.BehindText(m.Behind)
	case m.Everywhere:
		return "on all nodes"
	}
	return "on this node now, on all nodes when redis is back"
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

func (o Options) assign(ctx context.Context, k KeyPlan) (proxy.KeyResult, error) {
	return o.ChangeSince(ctx, k.Version, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: proxy.KeyAssign, Plan: k.Plan, For: k.For, Reason: k.Reason})
}

func (o Options) ban(ctx context.Context, k KeyBan) (proxy.KeyResult, error) {
	return o.ChangeSince(ctx, k.Version, proxy.KeyChange{KeyQuery: k.KeyQuery, Action: proxy.KeyBan, For: k.For, Reason: k.Reason})
}
