// Package config reads the YAML that operators write and turns it into values
// that cannot be wrong: whoever holds a *Config need not check it again.
//
// [Load] returns a whole [Config] or every problem of the files at once, each
// with its file, line and column and what to write instead. Loading has no side
// effects: it reads the files, and opens, dials or sets nothing else.
package config

import (
	"crypto/tls"
	"crypto/x509"
	"net/netip"
	"net/url"
	"time"

	"github.com/weir-proxy/weir/limiter"
	"github.com/weir-proxy/weir/proxy/key"
)

// A Config is what an operator wants, defaults filled in. It is immutable once
// loaded and safe for concurrent use.
type Config struct {
	Version   int // of the format: 1
	Listen    Listen
	Admin     Admin
	Store     Store
	Redis     Redis // meaningful when Store is StoreRedis
	Reload    Reload
	ClientIP  ClientIP
	Privacy   Privacy
	Defaults  Defaults
	Alerts    Alerts
	AccessLog AccessLog
	Traces    Traces
	Tokens    *key.Tokens          // verifies what jwt: reads; nil when nothing is said of tokens
	Keys      map[string]*key.Spec // by name; parts and replacements are resolved
	Upstreams map[string]*Upstream // by name; one written in place stands under its URL
	Routes    []*Route             // in the order of the files; never empty

	// Hash is the SHA-256 of everything that was read but the sections listen and
	// admin, in hexadecimal: machines that differ in these alone serve the same. It
	// does not depend on the directory that the files lie in.
	Hash string
	// Sum is as Hash, of this machine alone: with these sections, and with the files
	// that do not travel.
	Sum string
	// Files are the files that were read, the main file first.
	Files []string
	// Globs are the include patterns, relative ones joined with the directory
	// of the main file: a file that appears under one changes the config.
	Globs []string
	// Warnings are what is allowed but hardly meant, in the order of Problems.
	Warnings []Problem
	// Bare are secrets that stand in the files as they are, and would be read by
	// whoever sees these.
	Bare []Problem

	form    *file   // what was written, defaults filled in
	opened  []named // at the start, and not by loading
	written written
	values  []listed        // of lists
	own     map[string]bool // files that the configuration names
}

// Listen says where clients connect.
type Listen struct {
	HTTP          string // host:port; the port may be 0; "" for none
	HTTPS         string // as HTTP; not both are none
	TLS           []Pair // at least one if HTTPS is not none and ACME is nil
	ACME          *ACME  // nil for none
	H2C           bool   // whether HTTP/2 without TLS is spoken
	ProxyProtocol []netip.Prefix
	Timeouts      ListenTimeouts
	MaxHeader     int64 // bytes of a request's header; at least 1 KiB
	MaxBuffered   int64 // bytes of all bodies that keys are read from; at least 1 MiB
	ReusePort     bool  // another process may listen there too
	Drain         Drain
}

// Drain says how weir ends: for Delay, which may be 0, it only says so, and then
// requests in progress have Within, above 0.
type Drain struct{ Delay, Within time.Duration }

// A Pair is a certificate and its key: paths of PEM files, which have not been
// opened.
type Pair struct{ Cert, Key string }

// ListenTimeouts bound how long a client may take; all are above 0. Uploads and
// downloads may last as long as bytes flow.
type ListenTimeouts struct {
	Header time.Duration // for the header of a request
	Body   time.Duration // without any of a request's body, until the answer begins
	Write  time.Duration // to take a piece of what it is sent
	Idle   time.Duration // between requests
}

// Admin says where operators connect.
type Admin struct {
	HTTP  string // host:port; the port may be 0
	HTTPS string // as HTTP; "" for none, and none unless there is listen.https
	// ClientCA is PEM with the authorities of client certificates, one of which must have
	// signed that of whoever connects to HTTPS; "" asks for none (mutual TLS).
	ClientCA string
	Token    string   // empty: none is asked for, which is allowed on loopback only
	Hosts    []string // that are answered without a token, besides loopback
	// Tokens are those of single operators. With one of them, Token may be empty, and
	// none is answered without a token.
	Tokens []Token
}

// A Token is what one operator shows to be known.
type Token struct {
	Name  string // unique and token-safe
	Text  string // unique, and also not Admin.Token
	Write bool   // whether it may change anything
}

// A Store is a kind of place where counts live.
type Store string

// The stores.
const (
	StoreMemory Store = "memory" // one process
	StoreRedis  Store = "redis"  // shared by several
)

// ClientIP says whose word counts about where a request comes from.
type ClientIP struct {
	TrustedProxies []netip.Prefix // masked; IPv4 as IPv4
	Header         string         // canonical name
	IPv6Prefix     int            // bits of an IPv6 address that make one client, 1 to 128
}

// Privacy says what may leave the process.
type Privacy struct {
	HashSecret string // not empty: keys are HMACs under it
	Previous   string // the same of what was counted before, when Rotates
	Rotates    bool   // limits are claimed under both keys
	LogClient  LogClient
}

// LogClient is how the log shows a client's address.
type LogClient string

// The ways to show an address.
const (
	ClientFull    LogClient = "full"
	ClientNetwork LogClient = "network" // 24 bits of IPv4, 48 of IPv6
	ClientHashed  LogClient = "hashed"  // as limits count it, hashed
	ClientNone    LogClient = "none"
)

// LogPath is how the log shows a path that a route matches.
type LogPath string

// The ways to show a path.
const (
	PathFull     LogPath = "full"     // without parameters that are keys
	PathRedacted LogPath = "redacted" // without any parameter, nor what looks like a number or an address
)

// PreviousHash is the key of parts under the secret that is replaced, if one is.
func (p Privacy) PreviousHash(parts []string) (k limiter.Key, rotates bool) {
	if !p.Rotates {
		return k, false
	}
	return key.Hash(p.Previous, parts), true
}

// Hash is the key of parts under the secret in use; see key.Hash.
func (p Privacy) Hash(parts []string) limiter.Key { return key.Hash(p.HashSecret, parts) }

// A Mode says what a limit does with its refusals.
type Mode string

// The modes of a limit.
const (
	Enforce Mode = "enforce" // they are answered
	Shadow  Mode = "shadow"  // they are counted and reported only
	Off     Mode = "off"     // the limit is not asked
)

// An OnStoreFailure says what a limit answers when its store cannot.
type OnStoreFailure string

// What can happen when a store fails.
const (
	Allow OnStoreFailure = "allow" // the request passes
	Deny  OnStoreFailure = "deny"  // the request is refused
	Local OnStoreFailure = "local" // this process counts its own share
)

// Headers is the style in which clients are told about limits.
type Headers string

// The styles of headers.
const (
	HeadersIETF       Headers = "ietf"        // RateLimit and RateLimit-Policy
	HeadersXRateLimit Headers = "x-ratelimit" // X-RateLimit-Limit, -Remaining and -Reset
	HeadersNone       Headers = "none"
)

// Defaults are for limits that do not say otherwise; they are already applied
// to the limits of a loaded Config.
type Defaults struct {
	Mode           Mode
	OnStoreFailure OnStoreFailure
	Headers        Headers
	Expose         bool
	NewKeys        limiter.Rate // as that of a Route
}

// An Upstream is where requests go.
type Upstream struct {
	Name     string   // its URL when it was written in place
	Echo     bool     // built in: answers with what it was asked; there are no Targets
	Targets  []Target // at least one unless Echo
	Balance  Balance
	HashBy   *key.Spec // not nil exactly when Balance is BalanceHash
	Health   Health
	Timeouts Timeouts
	Retries  int // more targets that one request may be taken to
	// MaxConnections is the most requests that one target works on at a time,
	// 0 for any number; what exceeds it waits in the Queue.
	MaxConnections int
	Queue          Queue
	Protocol       Protocol
	TLS            UpstreamTLS
	Resolve        time.Duration // how often names are looked up again
	Forwarded      bool          // whether RFC 7239's field is sent
	Position       Position
}

// A Balance is how requests are spread over targets.
type Balance string

// The balances.
const (
	BalanceRoundRobin  Balance = "round_robin"
	BalanceLeastLoaded Balance = "least_loaded"
	BalanceHash        Balance = "hash" // by a key; those without it take turns
)

// Health says how targets are found out that are not available.
type Health struct {
	Path              string // begins with a slash; empty: targets are not looked at
	Interval, Timeout time.Duration
	Status            Statuses // of a good answer
	After             int      // failures in a row, at least 1
	Rest              time.Duration
	SlowStart         time.Duration // 0: none
}

// A Queue is where requests wait for a target.
type Queue struct {
	Length  int // may be 0
	Timeout time.Duration
}

// A Protocol is a version of HTTP.
type Protocol string

// The protocols that targets can speak.
const (
	ProtocolHTTP1 Protocol = "http1"
	ProtocolH2    Protocol = "h2"  // all targets are https
	ProtocolH2C   Protocol = "h2c" // no target is https
)

// UpstreamTLS is how https targets are trusted, and who Weir is to them.
type UpstreamTLS struct {
	Roots       *x509.CertPool   // nil: those of the machine
	Certificate *tls.Certificate // nil: none is shown
	ServerName  string           // empty: the host of the target's URL
}

// A Target is one server of an upstream.
type Target struct {
	URL    *url.URL // http or https, a host, perhaps a port, nothing else; or unix and an absolute path
	Weight int      // at least 1
}

// Timeouts bound the waiting for an upstream.
type Timeouts struct {
	Connect  time.Duration // until a connection stands; above 0
	TLS      time.Duration // for its handshake; 0: Connect is for both
	Response time.Duration // from the request's end to the response's header; above 0
	Idle     time.Duration // between two bytes of a response; 0: without end
}

// A Route is what happens to the requests that match.
type Route struct {
	Name        string // unique and token-safe
	Match       Match
	Upstream    *Upstream // nil exactly when Redirect or Respond is there
	Redirect    *Redirect
	Respond     *Respond
	Rewrite     Rewrite
	WebSocket   bool     // whether an upgrade to websocket is forwarded
	MaxBody     int64    // bytes of a request's body; 0 for any
	Limits      []*Limit // in the order of the file; may be empty
	Lists       []*List  // in the order of the file
	RefundOn    Refund
	Idempotency *Idempotency // nil: repeats count
	Reject      Reject
	// NewKeys is how many requests with new keys a client may send, which a Guard
	// can keep; the zero Rate is any number. NewKeysMode is what becomes of more.
	NewKeys     limiter.Rate
	NewKeysMode Mode
	LogPath     LogPath
	// CountPreflight says whether the limits are asked about preflights.
	CountPreflight bool
	// EncodedSlash says what becomes of a path with %2F.
	EncodedSlash EncodedSlash
	// FormBesideQuery says what becomes of a form in the body where something is
	// read from the query.
	FormBesideQuery FormBesideQuery
	Position        Position
}

// A Match says which requests a route is for.
type Match struct {
	Methods []string // upper case, no doubles; empty means all
	Host    string   // lower case: exact or *.example.com; empty means all
	// Path is a pattern that chi takes without panic: exact, {param},
	// {param:regexp} with the regexp anchored at both ends, /* at the end. It is
	// in the spelling of RFC 3986 section 6.2.2.
	Path    string
	Params  []string          // the names in Path, in order; "*" for /*
	Headers map[string]string // by canonical name; the value, or "*" for any
	Query   map[string]string // by name; the value, or "*" for any
}

// A Rewrite says what the upstream and the client see otherwise than it was sent.
type Rewrite struct {
	// StripPrefix and AddPrefix are whole segments in the spelling of a Path:
	// they begin with a slash and do not end with one; or they are empty.
	StripPrefix, AddPrefix string
	Request, Response      Fields
	Host                   string // what the upstream is asked for as host; empty: what the client asked for
}

// Fields are changes to headers, none of which frames a message or is set by
// Weir itself. Names are canonical.
type Fields struct {
	Set    map[string]string
	Remove []string
}
