package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config"
)

// A Definition describes a limit of the current configuration.
type Definition struct {
	Rates     []string `json:"rates"` // COUNT/WINDOW
	Algorithm string   `json:"algorithm"`
	Burst     int64    `json:"burst,omitempty"`
	Scope     string   `json:"scope"`              // overall or per_instance
	Distinct  string   `json:"distinct,omitempty"` // the key whose distinct values are counted
	Steps     []string `json:"steps,omitempty"`    // of a cooldown
	Redisson  string   `json:"redisson,omitempty"` // name of the shared Redisson limiter
}

// Define returns the definitions of the limits of a configuration, by
// their IDs: ROUTE.LIMIT, or LIMIT of a common one. Limits in mode off are included: their counts are kept for when
// they are enabled again.
func Define(c *config.Config) map[string]Definition {
	all := map[string]Definition{}
	for _, l := range c.Limits() {
		d := Definition{Algorithm: l.Algorithm.String(), Burst: l.Burst, Scope: l.Scope.String(), Redisson: l.RedissonName}
		for _, rate := range l.Rates {
			d.Rates = append(d.Rates, rate.String())
		}
		if l.Distinct != nil {
			d.Distinct = l.Distinct.Name
		}
		for _, step := range l.Steps {
			d.Steps = append(d.Steps, limiter.WindowName(step))
		}
		all[l.ID] = d
	}
	return all
}

// Limits returns the definitions of the current configuration, by their IDs.
func (n *Node) Limits(ctx context.Context) (map[string]Definition, error) {
	texts, err := n.rdb.HGetAll(ctx, n.prefix+"limits").Result()
	if err != nil {
		return nil, fmt.Errorf("read limits: %w", err)
	}
	all := make(map[string]Definition, len(texts))
	for name, text := range texts {
		var d Definition
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			return nil, fmt.Errorf("read limits: %w: %s is %s", errReply, name, text)
		}
		all[name] = d
	}
	return all, nil
}

// definitionArgs returns the arguments with which a script stores the definitions.
func definitionArgs(c *config.Config) []any {
	all := Define(c)
	var args []any
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b, err := json.Marshal(all[name])
		if err != nil {
			panic(err) // strings and numbers can always be marshalled
		}
		args = append(args, name, b)
	}
	return args
}
