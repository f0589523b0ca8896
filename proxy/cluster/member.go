package cluster

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

//go:embed members.lua
var membersScript string

// A Member describes a live node.
type Member struct {
	ID         string    `json:"id"`
	Address    string    `json:"address"` // of its admin listener; a wildcard address is replaced by the host name
	Version    string    `json:"version"` // of the program
	Source     string    `json:"source"`  // of its configuration: file or redis
	Hash       string    `json:"hash"`    // of the configuration it serves
	Generation int64     `json:"generation"`
	Started    time.Time `json:"started"` // by its own clock
	Seen       time.Time `json:"seen"`    // last heartbeat, by Redis's clock
	Problem    string    `json:"problem"` // why it does not serve what was pushed last; empty if it does, or nothing is known
}

// Nodes returns the live nodes, ordered by id. A dead node is listed for up to
// ten seconds.
func (n *Node) Nodes(ctx context.Context) ([]Member, error) {
	reply, err := n.scripts.members.Run(ctx, n.rdb, []string{n.prefix + "nodes", n.prefix + "members"}, memberTimeout.Milliseconds()).Slice()
	if err != nil {
		return nil, fmt.Errorf("read nodes: %w", err)
	}
	members := make([]Member, 0, len(reply))
	for _, row := range reply {
		m, err := readMember(row)
		if err != nil {
			return nil, fmt.Errorf("read nodes: %w", err)
		}
		members = append(members, m)
	}
	slices.SortFunc(members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return members, nil
}

// readMember decodes a row of id, time and JSON.
func readMember(row any) (Member, error) {
	var m Member
	texts, ok := row.([]any)
	if !ok || len(texts) != 3 {
		return m, fmt.Errorf("%w: a row is %v", errReply, row)
	}
	id, _ := texts[0].(string)
	at, _ := texts[1].(string)
	said, _ := texts[2].(string)
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || id == "" {
		return m, fmt.Errorf("%w: a row is %v", errReply, row)
	}
	if err := json.Unmarshal([]byte(said), &m); err != nil {
		return m, fmt.Errorf("%w: node %s says %s", errReply, id, said)
	}
	m.ID, m.Seen = id, time.UnixMilli(ms).UTC()
	return m, nil
}

// heartbeat returns the content of a heartbeat. The script that compares hashes finds them in this
// text.
func (n *Node) heartbeat() (text, hash string) {
	now := n.serving.Load()
	b, err := json.Marshal(struct {
		Address    string    `json:"address"`
		Version    string    `json:"version"`
		Source     string    `json:"source"`
		Hash       string    `json:"hash"`
		Generation int64     `json:"generation"`
		Started    time.Time `json:"started"`
		Problem    string    `json:"problem,omitempty"`
	}{n.address, n.version, n.source, now.hash, now.number, n.started, now.problem})
	if err != nil {
		panic(err) // such a value can always be marshalled
	}
	return string(b), now.hash
}

// A heartbeatReply is what a heartbeat tells.
type heartbeatReply struct {
	live, others int64 // others serve another configuration
	number       int64 // of the latest configuration
	lost         int64
}

// readHeartbeat decodes the reply to a heartbeat.
func readHeartbeat(reply *redis.Cmd) (heartbeatReply, error) {
	n, err := reply.Int64Slice()
	if err != nil || len(n) != 4 {
		return heartbeatReply{}, fmt.Errorf("%w: %v %w", errReply, n, err)
	}
	return heartbeatReply{n[0], n[1], n[2], n[3]}, nil
}

// Lost returns the nodes that ended without leaving the cluster in the last hour, or that are partitioned, ordered
// by their last sign of life, the latest first. A node that is heard again is not lost any more.
func (n *Node) Lost(ctx context.Context) ([]Member, error) {
	rows, err := n.rdb.HGetAll(ctx, n.prefix+"lost").Result()
	if err != nil {
		return nil, fmt.Errorf("read lost nodes: %w", err)
	}
	lost := make([]Member, 0, len(rows))
	for id, row := range rows {
		at, said, _ := strings.Cut(row, " ")
		m, err := readMember([]any{id, at, said})
		if err != nil {
			return nil, fmt.Errorf("read lost nodes: %w", err)
		}
		lost = append(lost, m)
	}
	slices.SortFunc(lost, func(a, b Member) int { return cmp.Or(b.Seen.Compare(a.Seen), strings.Compare(a.ID, b.ID)) })
	return lost, nil
}
