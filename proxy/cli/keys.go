package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/weir-proxy/weir/proxy"
)

// keysCommand shows and changes the state of a key on all nodes.
type keysCommand struct {
	Get   keysGet   `cmd:"" help:"Show the state of a key under each limit."`
	Reset keysReset `cmd:"" help:"Reset the counts of a key, and end its bans."`
	Grant keysGrant `cmd:"" help:"Grant a key additional permits."`
	Ban   keysBan   `cmd:"" help:"Ban a key for some time."`
	Unban keysUnban `cmd:"" help:"End the bans of a key; its counts stay."`
	Plan  keysPlan  `cmd:"" help:"Assign a plan to a key for some time."`
	Plans keysPlans `cmd:"" help:"List the plans that are assigned to keys."`
	Bans  keysBans  `cmd:"" help:"List the networks that are banned."`
}

// keyArgs are the arguments that select a key.
type keyArgs struct {
	adminFlags
	Pairs []string `arg:"" name:"key=value" names:"keys" help:"The name of the key in the configuration, and a value as in a request: phone=+8613800138000; for a joined key one argument for each part. The value may be id:..., as shown by get and top."`
	Route string   `help:"Only limits of this route." placeholder:"NAME" names:"routes"`
	Limit string   `help:"Only limits of this name." placeholder:"NAME" names:"limits"`
	JSON  bool     `name:"json" help:"Print JSON."`
}

// query returns the query for the key.
func (k keyArgs) query() (proxy.KeyQuery, error) {
	q := proxy.KeyQuery{Route: k.Route, Limit: k.Limit}
	for _, text := range k.Pairs {
		pair, err := proxy.ParseKeyPair(text)
		if err != nil {
			return q, withoutPrefix(err, proxy.ErrKeyQuery)
		}
		q.Pairs = append(q.Pairs, pair)
	}
	return q, nil
}

// withoutPrefix returns err without the words of kind before it, which do not concern operators.
func withoutPrefix(err, kind error) error {
	return errors.New(strings.TrimPrefix(err.Error(), kind.Error()+": "))
}

// change applies c to the key, or looks it up if c has no action, and prints the result.
func (k keyArgs) change(ctx context.Context, w Env, c proxy.KeyChange) error {
	var err error
	if c.KeyQuery, err = k.query(); err != nil {
		return err
	}
	text := keysText{w: w.Stdout, palette: newPalette(w.Stdout)}
	if k.JSON {
		text.w = io.Discard
	}
	answer, err := text.ask(ctx, k.client(), c)
	if err != nil || k.JSON {
		return printJSON(w, answer, err)
	}
	return text.err
}

type keysGet struct{ keyArgs }

// Run prints the state of the key, without taking permits.
func (k keysGet) Run(ctx context.Context, w Env) error {
	return k.change(ctx, w, proxy.KeyChange{})
}

// reasonFlag is the flag for the reason of a change.
type reasonFlag struct {
	Reason string `help:"Reason, for the audit trail." placeholder:"TEXT"`
}

type keysReset struct {
	keyArgs
	reasonFlag
}

// Run resets the counts.
func (k keysReset) Run(ctx context.Context, w Env) error {
	return k.change(ctx, w, proxy.KeyChange{Action: proxy.KeyReset, Reason: k.Reason})
}

type keysGrant struct {
	keyArgs
	reasonFlag
	Permits int64 `required:"" help:"Number of permits; a key never has more than its limit." placeholder:"N"`
}

// Run grants permits.
func (k keysGrant) Run(ctx context.Context, w Env) error {
	return k.change(ctx, w, proxy.KeyChange{Action: proxy.KeyGrant, Permits: k.Permits, Reason: k.Reason})
}

type keysBan struct {
	keyArgs
	reasonFlag
	For string `required:"" help:"Duration: 15m, 1h, 7d." placeholder:"DURATION"`
}

// Run bans the key.
func (k keysBan) Run(ctx context.Context, w Env) error {
	span, err := parseFor(k.For, "1h")
	if err != nil {
		return err
	}
	return k.change(ctx, w, proxy.KeyChange{Action: proxy.KeyBan, For: span, Reason: k.Reason})
}

// parseFor parses the flag --for; the error has an example.
func parseFor(text, example string) (span proxy.Span, err error) {
	if span.UnmarshalText([]byte(text)) != nil {
		err = fmt.Errorf("--for %s: a duration needs a unit; write for example %s", text, example)
	}
	return span, err
}

type keysUnban struct {
	keyArgs
	reasonFlag
}

// Run ends bans.
func (k keysUnban) Run(ctx context.Context, w Env) error {
	return k.change(ctx, w, proxy.KeyChange{Action: proxy.KeyUnban, Reason: k.Reason})
}

// printJSON prints v as JSON. If the request for it failed, it returns that error.
func printJSON(w Env, v any, err error) error {
	if err != nil {
		return err
	}
	out := json.NewEncoder(w.Stdout)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(v)
}
