package node

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/cluster"
	"github.com/weir-proxy/weir/proxy/directive"
	"github.com/weir-proxy/weir/proxy/view"
)

// changeNetwork bans or unbans a network for an operator.
func (n *Node) changeNetwork(ctx context.Context, c view.KeyChange, network netip.Prefix) (r view.KeyResult, err error) {
	one := directive.Directive{Network: network, Route: c.Route, Who: admin.OperatorOf(ctx).Name, Reason: c.Reason}
	r = view.KeyResult{KeyChange: c, Network: &network, Changed: []view.LimitStanding{}}
	r.Pairs = nil
	e := view.AuditEntry{Action: string(c.Action), Masked: "client_ip=" + network.String(), Reason: c.Reason, Limits: []string{}}
	switch c.Action {
	case view.KeyBan:
		r.Everywhere, err = n.putDirective(ctx, &one, time.Duration(c.For))
		e.For = c.For.String()
	case view.KeyUnban:
		found := false
		if found, r.Everywhere = n.directives.Remove(ctx, one); !found {
			return r, fmt.Errorf("%w: there is no ban of %s to end; weir keys bans lists the networks that are banned", view.ErrKeyQuery, network)
		}
	default:
		return r, fmt.Errorf("%w: a network can be banned and unbanned; for anything else name an address", view.ErrKeyQuery)
	}
	if err != nil {
		return r, err
	}
	r.At, r.Waits = time.Now(), func() (settled, everywhere bool) { return n.directives.Settled(one) }
	e.OneNode = !r.Everywhere
	n.spread(ctx, &r)
	r.Now, e.Behind = n.proxy.Now(ctx, c), r.Behind
	n.recordLater(ctx, e, &r)
	n.events.Publish(admin.Event{Type: admin.EventKey, Action: e.Action, Who: one.Who, Masked: e.Masked})
	return r, nil
}

// spread waits until all nodes follow a change of directives, or have been heard from after one of a key, which is in the store. Of
// the others it sets what is to be said.
func (n *Node) spread(ctx context.Context, r *view.KeyResult) {
	if r.Later = !r.Everywhere; r.Everywhere {
		r.Behind = n.nodesBehind(ctx)
		r.Everywhere = len(r.Behind) == 0
	}
}

// followTimeout is how long other nodes have to say that they follow a change of directives. After it they do
// so unasked.
const followTimeout = time.Second

// nodesBehind makes all nodes follow the directives of now, and returns those that did not say that they do.
func (n *Node) nodesBehind(ctx context.Context) (behind []string) {
	if n.store.cluster == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), followTimeout)
	defer cancel()
	replies, err := n.store.cluster.Ask(ctx, cluster.Question{Directives: true})
	if err != nil {
		return []string{"others"}
	}
	for _, r := range replies {
		if !r.Seen.Followed {
			behind = append(behind, r.Node)
		}
	}
	return behind
}

// putDirective makes one hold for some time.
func (n *Node) putDirective(ctx context.Context, one *directive.Directive, d time.Duration) (everywhere bool, err error) {
	if d <= 0 || limiter.CheckBan(d) != nil {
		return false, fmt.Errorf("%w: it lasts from 1ms to 366d; write for example 1h", view.ErrKeyQuery)
	}
	one.Who, one.At = admin.OperatorOf(ctx).Name, time.Now().UTC().Truncate(time.Millisecond)
	one.Until = one.At.Add(d)
	return n.directives.Put(ctx, *one)
}

// bans returns the bans of networks.
func (n *Node) bans(context.Context) (admin.Bans, error) {
	return admin.Bans{Networks: n.held(func(d directive.Directive) bool { return d.Network.IsValid() })}, nil
}

// held returns the directives of a kind that hold.
func (n *Node) held(is func(directive.Directive) bool) []directive.Directive {
	return slices.DeleteFunc(append([]directive.Directive{}, n.directives.All()...), func(d directive.Directive) bool { return !is(d) })
}

// maintenance returns the routes under maintenance.
func (n *Node) maintenance(context.Context) (admin.Maintenance, error) {
	settled, _ := n.directives.Settled()
	return admin.Maintenance{On: n.held(directive.Directive.IsMaintenance), Everywhere: settled}, nil
}

// setMaintenance begins or ends maintenance for an operator.
func (n *Node) setMaintenance(ctx context.Context, c admin.MaintenanceChange) (m admin.Maintenance, err error) {
	if _, _, err = n.proxy.CheckNames(c.Route, ""); err != nil {
		return m, err
	}
	one := directive.Directive{Route: c.Route, Reason: c.Reason}
	e := view.AuditEntry{Action: "maintenance off", Reason: c.Reason, Detail: "all routes"}
	if c.Route != "" {
		e.Detail = "route " + c.Route
	}
	found, everywhere := true, false
	if c.On {
		e.Action, e.For = "maintenance on", map[bool]string{true: c.For.String()}[c.For != 0]
		everywhere, err = n.putDirective(ctx, &one, cmp.Or(time.Duration(c.For), limiter.MaxWindow))
	} else if found, everywhere = n.directives.Remove(ctx, one); !found {
		held := []string{}
		for _, d := range n.held(directive.Directive.IsMaintenance) {
			held = append(held, cmp.Or(d.Route, "all routes"))
		}
		err = fmt.Errorf("%w: there is no maintenance of %s to end; under maintenance: %s", view.ErrKeyQuery, e.Detail, cmp.Or(strings.Join(held, ", "), "no route"))
	}
	if err != nil {
		return m, err
	}
	r := view.KeyResult{Everywhere: everywhere, Network: &one.Network, Waits: func() (settled, everywhere bool) { return n.directives.Settled(one) }}
	n.spread(ctx, &r)
	e.OneNode, e.Behind = r.Later, r.Behind
	n.recordLater(ctx, e, &r)
	m, err = n.maintenance(ctx)
	m.Behind, m.Everywhere = r.Behind, m.Everywhere && len(r.Behind) == 0
	return m, err
}

// plans returns the plans that operators have assigned to keys.
func (n *Node) plans(context.Context) (admin.Plans, error) {
	all := admin.Plans{Keys: []admin.AssignedPlan{}}
	for _, d := range n.held(directive.Directive.IsPlan) {
		hash, id := n.proxy.NameKey(d)
		d.Key.Hash = hash
		all.Keys = append(all.Keys, admin.AssignedPlan{Directive: d, ID: id})
	}
	return all, nil
}

// changePlan assigns a plan to a key for an operator, or ends that.
func (n *Node) changePlan(ctx context.Context, c view.KeyChange) (r view.KeyResult, err error) {
	all, err := n.proxy.Assignments(c)
	if err != nil {
		return r, err
	}
	before, err := n.proxy.Standing(ctx, c.KeyQuery)
	if err != nil {
		return r, err
	}
	r = view.KeyResult{KeyChange: c, Everywhere: true, Waits: func() (settled, everywhere bool) { return n.directives.Settled(all...) }}
	r.Pairs = nil
	ended := false
	for i := range all {
		var everywhere, found bool
		one := &all[i]
		if c.Action == view.KeyAssign {
			everywhere, err = n.putDirective(ctx, one, time.Duration(c.For))
		} else {
			found, everywhere = n.directives.Remove(ctx, *one)
		}
		if err != nil {
			return r, err
		}
		r.Everywhere, ended = r.Everywhere && everywhere, ended || found
	}
	if c.Action == view.KeyUnassign && !ended {
		return r, fmt.Errorf("%w: there is no assignment of a plan to this key to end; weir keys plans lists those that there are", view.ErrKeyQuery)
	}
	n.spread(ctx, &r)
	after, err := n.proxy.Standing(ctx, c.KeyQuery)
	r.At, r.Notes, r.Now = after.At, after.Notes, n.proxy.Now(ctx, c)
	r.Changed = assigned(after.Limits, before.Limits)
	return r, err
}

// assigned returns the limits under which the key has, or had before, a plan that was assigned.
func assigned(now, before []view.LimitStanding) []view.LimitStanding {
	changed := []view.LimitStanding{}
	for _, l := range now {
		had := slices.ContainsFunc(before, func(b view.LimitStanding) bool {
			return b.Route == l.Route && b.Limit == l.Limit && !b.PlanUntil.IsZero()
		})
		if had || !l.PlanUntil.IsZero() {
			changed = append(changed, l)
		}
	}
	return changed
}
