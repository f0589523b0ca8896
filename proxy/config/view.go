package config

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
	"github.com/weir-proxy/weir/proxy/view"
)

// View returns what operators see of r.
func (r *Route) View() view.Route {
	v := view.Route{
		Name: r.Name, Position: r.Position.String(), Host: r.Match.Host, Methods: r.Match.Methods, Path: r.Match.Path,
		Headers: r.Match.Headers, Query: r.Match.Query, Limits: []string{},
	}
	for _, l := range r.Limits {
		v.Limits = append(v.Limits, l.Name)
	}
	for _, l := range r.Lists {
		v.Lists = append(v.Lists, l.Name)
	}
	switch {
	case r.Redirect != nil:
		v.Redirect = r.Redirect.To
	case r.Respond != nil:
		v.Respond = r.Respond.Status
	case r.Upstream != nil:
		v.Upstream = r.Upstream.Name
	}
	if r.NewKeys != (limiter.Rate{}) {
		v.NewKeys = r.NewKeys.String()
	}
	return v
}

// View returns what operators see of l.
func (l *Limit) View() view.Limit {
	v := view.Limit{
		Route: l.Route, Routes: l.Routes, Name: l.Name, Position: l.Position.String(), Key: l.Key.Name, Distinct: nameOf(l.Distinct),
		Rates: l.RateTexts(), Algorithm: l.Algorithm.String(), Burst: l.Burst, Mode: string(l.Mode), Scope: l.Scope.String(),
		OnStoreFailure: string(l.OnStoreFailure), Exposed: l.Expose, Overrides: len(l.Overrides), Redisson: l.RedissonName,
		Plans: slices.Sorted(maps.Keys(l.Plans)),
	}
	if l.Key.Join != nil {
		for _, leaf := range l.Key.Components() {
			v.Parts = append(v.Parts, leaf.Name)
		}
	}
	if l.Wait > 0 {
		v.Wait = limiter.WindowName(l.Wait)
	}
	return v
}

// Explained returns what is explained of l whatever the request is.
func (l *Limit) Explained() view.ExplainedLimit {
	v := view.ExplainedLimit{
		Name: l.Name, Routes: l.Routes, Key: l.Key.Name, Distinct: nameOf(l.Distinct), Algorithm: l.Algorithm.String(), Mode: string(l.Mode),
		Scope: l.Scope.String(), OnStoreFailure: string(l.OnStoreFailure), Exposed: l.Expose, Cost: 1, Windows: []view.ExplainedWindow{},
	}
	if l.Wait > 0 {
		v.Wait = l.Wait.String()
	}
	if to := l.Return; to != nil {
		v.Returned = "returned by " + to.Route + " for the same " + to.Subject.Name
	}
	if s := l.StepUp; s != nil {
		v.StepUp = "then 403 with the challenge " + s.Challenge + ", and passes with a token for its " + s.Key.Name + " in " + s.Header + " at"
		for _, rate := range s.Rates {
			v.StepUp += " " + rate.String()
		}
	}
	if p := l.Penalty; p != nil {
		v.Penalty = "banned for " + limiter.WindowName(p.Ban)
		if p.After > 1 {
			v.Penalty += " after refusals at the rate " + limiter.Rate{Count: p.After, Window: l.LongestWindow()}.String()
		} else {
			v.Penalty += " at the next refusal"
		}
	}
	return v
}

// nameOf returns the name of a key; "" if there is none.
func nameOf(s *key.Spec) string {
	if s == nil {
		return ""
	}
	return s.Name
}

// RateText returns a rate of l as operators write and read it: 5/1h, 400 EUR/1d of a budget, 4 at a time, or the
// steps of a cooldown.
func (l *Limit) RateText(rate limiter.Rate) string {
	switch {
	case l.Algorithm.HasLeases():
		return strconv.FormatInt(rate.Count, 10) + " at a time"
	case l.Algorithm.HasSteps():
		var steps []string
		for _, s := range l.Steps {
			steps = append(steps, limiter.WindowName(s))
		}
		return strings.Join(steps, " ")
	}
	return l.writtenRate(rate)
}

// RateTexts returns all rates of l; a cooldown has one.
func (l *Limit) RateTexts() []string {
	texts := []string{}
	for _, rate := range l.Rates {
		texts = append(texts, l.RateText(rate))
	}
	return texts
}

// LongestWindow returns the longest window of the rates of l.
func (l *Limit) LongestWindow() (window time.Duration) {
	for _, r := range l.Rates {
		window = max(window, r.Window)
	}
	return window
}
