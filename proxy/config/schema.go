// Package config loads the YAML configuration into validated values: users of a *Config
// need not check it again.
//
// [Load] returns a complete [Config], or all problems of the files at once, each with file,
// line and column and what to write instead. Loading has no side effects other than reading
// files: it opens no connections and changes nothing.
package config

import (
	"crypto/tls"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/config/internal/form"
	"github.com/weir-proxy/weir/proxy/key"
)

// A Config is a configuration with defaults filled in. It is immutable once loaded and safe
// for concurrent use.
type Config struct {
	Listen    Listen
	Admin     Admin
	Store     Store
	Redis     Redis // used if Store is StoreRedis
	Reload    Reload
	ClientIP  ClientIP
	Privacy   Privacy
	Defaults  Defaults
	Alerts    Alerts
	Errors    map[int]Reject // by status, for routes without their own
	AccessLog AccessLog
	Traces    Traces
	Tokens    []*key.Tokens        // verify tokens: that of the section jwt, and those of step_up
	Keys      map[string]*key.Spec // by name; parts and replacements are resolved
	Upstreams map[string]*Upstream // by name; inline ones by URL
	Routes    []*Route             // in the order of the files; never empty

	// Hash is the SHA-256 of everything that was read except the sections listen and admin,
	// in hexadecimal: machines that differ only in these have the same configuration. It
	// does not depend on the directory of the files.
	Hash string
	// Sum is like Hash for this machine alone: with these sections, and with the files that
	// are not pushed.
	Sum string
	// Files are the files that were read, the main file first.
	Files []string
	// Globs are the include patterns, relative ones joined with the directory of the main
	// file: a new file that matches one changes the configuration.
	Globs []string
	// Warnings report values that are allowed but probably mistakes, in the order of
	// Problems.
	Warnings []Problem
	// Remarks are about values that do no harm, such as keys that nothing uses.
	Remarks []Problem
	// Bare reports secrets that are written in the files instead of environment variables.
	Bare []Problem

	form    *file   // the decoded file, defaults filled in
	opened  []named // files opened at start, not by loading
	outputs []named // files and directories that are written
	written form.Written
	values  []Value         // of lists
	own     map[string]bool // files named by the configuration
}

// A Store is where counts are kept.
type Store string

// The stores.
const (
	StoreMemory Store = "memory" // one process
	StoreRedis  Store = "redis"  // shared by several processes
)

// LogClient is how client addresses are logged.
type LogClient string

// The ways to show an address.
const (
	ClientFull    LogClient = "full"
	ClientNetwork LogClient = "network" // 24 bits of IPv4, 48 of IPv6
	ClientHashed  LogClient = "hashed"  // hash of the address that limits count by
	ClientNone    LogClient = "none"
)

// LogPath is how the path of a matched request is logged.
type LogPath string

// The ways to show a path.
const (
	PathFull     LogPath = "full"     // without parameters that are keys
	PathRedacted LogPath = "redacted" // without parameters, numbers and addresses
)

// PreviousHash returns the key of parts with the previous secret, if there is a rotation.
func (p Privacy) PreviousHash(parts []string) (k limiter.Key, rotates bool) {
	if !p.Rotates {
		return k, false
	}
	return key.Hash(p.Previous, parts), true
}

// Hash returns the key of parts with the current secret; see key.Hash.
func (p Privacy) Hash(parts []string) limiter.Key { return key.Hash(p.HashSecret, parts) }

// A Mode is the mode of a limit.
type Mode string

// The modes of a limit.
const (
	Enforce Mode = "enforce" // refuses requests
	Shadow  Mode = "shadow"  // only counts and reports refusals
	Off     Mode = "off"     // disabled
)

// An OnStoreFailure is the policy of a limit while its store is unreachable.
type OnStoreFailure string

// Values of OnStoreFailure.
const (
	Allow OnStoreFailure = "allow" // the request passes
	Deny  OnStoreFailure = "deny"  // the request is refused
	Local OnStoreFailure = "local" // this process counts its share in memory
)

// A Balance is a load balancing method.
type Balance string

// The balances.
const (
	BalanceRoundRobin  Balance = "round_robin"
	BalanceLeastLoaded Balance = "least_loaded"
	BalanceHash        Balance = "hash" // by a key; round robin for requests without it
)

// A Protocol is a version of HTTP.
type Protocol string

// The protocols that targets can speak.
const (
	ProtocolHTTP1 Protocol = "http1"
	ProtocolH2    Protocol = "h2"  // all targets are https
	ProtocolH2C   Protocol = "h2c" // no target is https
)

// ClientConfig returns t for crypto/tls; nil if t is nil.
func (t *UpstreamTLS) ClientConfig() *tls.Config {
	if t == nil {
		return nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: t.Roots, ServerName: t.ServerName}
	if t.Certificate != nil {
		c.Certificates = []tls.Certificate{*t.Certificate}
	}
	return c
}
