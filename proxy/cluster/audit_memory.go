package cluster

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"
)

// memoryAudit stores the audit trail of a single process in memory.
type memoryAudit struct {
	mu      sync.Mutex // guards what follows
	last    int64      // id of the last entry
	entries []AuditEntry
}

// write implements auditStore.
func (m *memoryAudit) write(_ context.Context, e AuditEntry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last++
	e.ID = strconv.FormatInt(m.last, 10)
	old := time.Now().Add(-AuditRetention)
	kept := m.entries // oldest first
	for len(kept) > 0 && (len(kept) >= MaxAuditEntries || kept[0].At.Before(old)) {
		kept = kept[1:]
	}
	m.entries = append(kept, e)
	return nil
}

// page implements auditStore.
func (m *memoryAudit) page(_ context.Context, before string, n int) ([]AuditEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	end, old := int64(0), time.Now().Add(-AuditRetention)
	if before != "" {
		var err error
		if end, err = strconv.ParseInt(before, 10, 64); err != nil {
			return nil, ErrAuditID
		}
	}
	found := []AuditEntry{}
	for _, e := range slices.Backward(m.entries) {
		if id, err := strconv.ParseInt(e.ID, 10, 64); err != nil || before != "" && id >= end || e.At.Before(old) {
			continue
		}
		if found = append(found, e); len(found) == n {
			break
		}
	}
	return found, nil
}
