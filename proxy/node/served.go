package node

import (
	"context"
	"maps"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy"
	"github.com/weir-proxy/weir/proxy/admin"
	"github.com/weir-proxy/weir/proxy/config"
)

// This file returns the current configuration in the types of the admin API.

func (n *Node) servedConfig(context.Context) (admin.Config, error) {
	number, c := n.proxy.Serving()
	text, err := c.Effective()
	return admin.Config{Node: n.store.id, Generation: number, Hash: c.Hash, Effective: string(text)}, err
}

func (n *Node) servedRoutes(context.Context) (admin.Routes, error) {
	number, c := n.proxy.Serving()
	all := admin.Routes{Generation: number, Routes: []admin.Route{}}
	for _, r := range c.Routes {
		all.Routes = append(all.Routes, servedRoute(r))
	}
	return all, nil
}

func servedRoute(r *config.Route) admin.Route {
	a := admin.Route{
		Name: r.Name, Position: r.Position.String(), Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path,
		Headers: r.Match.Headers, Query: r.Match.Query, Limits: []string{},
	}
	for _, l := range r.Limits {
		a.Limits = append(a.Limits, l.Name)
	}
	for _, l := range r.Lists {
		a.Lists = append(a.Lists, l.Name)
	}
	switch {
	case r.Redirect != nil:
		a.Redirect = r.Redirect.To
	case r.Respond != nil:
		a.Respond = r.Respond.Status
	case r.Upstream != nil:
		a.Upstream = r.Upstream.Name
	}
	if r.NewKeys != (limiter.Rate{}) {
		a.NewKeys = r.NewKeys.String()
	}
	return a
}

func (n *Node) servedLimits(context.Context) (admin.Limits, error) {
	number, c := n.proxy.Serving()
	all := admin.Limits{Generation: number, Limits: []admin.Limit{}}
	for _, l := range c.Limits() {
		all.Limits = append(all.Limits, servedLimit(l))
	}
	return all, nil
}

func servedLimit(l *config.Limit) admin.Limit {
	a := admin.Limit{
		Route: l.Route, Routes: l.Routes, Name: l.Name, Position: l.Position.String(), Key: l.Key.Name, Rates: proxy.RateTexts(l),
		Algorithm: l.Algorithm.String(), Burst: l.Burst, Mode: string(l.Mode), Scope: l.Scope.String(),
		OnStoreFailure: string(l.OnStoreFailure), Exposed: l.Expose, Overrides: len(l.Overrides), Redisson: l.RedissonName,
	}
	if l.Key.Join != nil {
		for _, leaf := range l.Key.Components() {
			a.Parts = append(a.Parts, leaf.Name)
		}
	}
	if l.Distinct != nil {
		a.Distinct = l.Distinct.Name
	}
	a.Plans = slices.Sorted(maps.Keys(l.Plans))
	if l.Wait > 0 {
		a.Wait = limiter.WindowName(l.Wait)
	}
	return a
}
