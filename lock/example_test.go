package lock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/weir-proxy/weir/lock"
	"github.com/weir-proxy/weir/test/redistest"
)

// An exampleServer is a Redis for one example.
type exampleServer struct {
	testing.TB // for its type only
	cleanups   []func()
}

func (s *exampleServer) Helper()          {}
func (s *exampleServer) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }
func (s *exampleServer) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}
func (s *exampleServer) Fatalf(format string, args ...any) { s.Fatal(fmt.Sprintf(format, args...)) }

// connect starts a server of its own; close ends it.
func connect() (rdb *redis.Client, closeAll func()) {
	s := new(exampleServer)
	server := redistest.Start(s)
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true})
	return rdb, func() {
		rdb.Close()
		for i := len(s.cleanups) - 1; i >= 0; i-- {
			s.cleanups[i]()
		}
	}
}

func Example() {
	rdb, closeAll := connect()
	defer closeAll()
	ctx := context.Background()

	locker := lock.New(rdb)
	defer locker.Close()
	hold, err := locker.Reentrant("orders").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locker.Reentrant("orders").TryLock(ctx)
	fmt.Println("somebody else:", errors.Is(err, lock.ErrNotAcquired))
	fmt.Println("unlock:", hold.Unlock(ctx))
	fmt.Println("the work may go on:", hold.Context().Err() == nil)
	// Output:
	// somebody else: true
	// unlock: <nil>
	// the work may go on: false
}

func ExampleDo() {
	rdb, closeAll := connect()
	defer closeAll()
	locker := lock.New(rdb)
	defer locker.Close()

	err := lock.Do(context.Background(), locker.Reentrant("orders"), func(ctx context.Context) error {
		fmt.Println("alone")
		return nil
	})
	fmt.Println(err)
	// Output:
	// alone
	// <nil>
}

// The resource keeps the largest token that it has seen and refuses smaller
// ones: the holder that lost the lock cannot undo what the next one did.
func ExampleLocker_Fenced() {
	rdb, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	locker := lock.New(rdb)
	defer locker.Close()

	var seen int64
	balance := 100
	write := func(h *lock.Hold, value int) {
		if h.Token() < seen {
			fmt.Println("too late, refused:", value)
			return
		}
		seen, balance = h.Token(), value
	}

	slow, _ := locker.Fenced("account").Lock(ctx, lock.WithLease(500*time.Millisecond))
	<-slow.Context().Done() // it was stopped for longer than its lease
	next, _ := locker.Fenced("account").Lock(ctx)
	write(next, 90)
	write(slow, 120)
	fmt.Println("balance:", balance)
	fmt.Println(slow.Unlock(ctx), next.Unlock(ctx))
	// Output:
	// too late, refused: 120
	// balance: 90
	// lock lost <nil>
}

// A transfer needs both of its accounts, and no order of locking them.
func ExampleLocker_Group() {
	rdb, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	locker := lock.New(rdb)
	defer locker.Close()

	transfer, _ := locker.Group("accounts", "anna", "bert").Lock(ctx)
	_, err := locker.Group("accounts", "bert", "carl").TryLock(ctx)
	fmt.Println("bert's are held:", errors.Is(err, lock.ErrNotAcquired))
	other, err := locker.Group("accounts", "carl", "dora").TryLock(ctx)
	fmt.Println("carl's and dora's are free:", err == nil)
	fmt.Println(other.Unlock(ctx), transfer.Unlock(ctx))
	// Output:
	// bert's are held: true
	// carl's and dora's are free: true
	// <nil> <nil>
}

func ExampleHold_Reenter() {
	rdb, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	locker := lock.New(rdb)
	defer locker.Close()

	outer, _ := locker.Reentrant("orders").Lock(ctx)
	inner, _ := outer.Reenter(ctx)
	outer.Unlock(ctx)
	fmt.Println("holds:", rdb.HGet(ctx, "orders", inner.Owner().String()).Val())
	inner.Unlock(ctx)
	fmt.Println("keys:", rdb.Exists(ctx, "orders").Val())
	// Output:
	// holds: 1
	// keys: 0
}

func ExampleReadWrite() {
	rdb, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	locker := lock.New(rdb)
	defer locker.Close()

	catalogue := locker.ReadWrite("catalogue")
	writer, _ := catalogue.Write().Lock(ctx)
	reader, _ := catalogue.Read().Lock(ctx, lock.WithOwner(writer.Owner()))
	writer.Unlock(ctx) // goes on as a reader; no writer came between
	another, err := catalogue.Read().TryLock(ctx)
	fmt.Println("another reader:", err)
	_, err = catalogue.Write().TryLock(ctx)
	fmt.Println("a writer:", errors.Is(err, lock.ErrNotAcquired))
	reader.Unlock(ctx)
	another.Unlock(ctx)
	// Output:
	// another reader: <nil>
	// a writer: true
}

func ExampleLocker_ExpirableSemaphore() {
	rdb, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	locker := lock.New(rdb)
	defer locker.Close()

	workers := locker.ExpirableSemaphore("workers")
	workers.TrySetPermits(ctx, 1)
	permit, _ := workers.Lock(ctx)
	_, err := workers.TryLock(ctx)
	fmt.Println("a second one:", errors.Is(err, lock.ErrNotAcquired))
	permit.Unlock(ctx)
	free, _ := workers.Available(ctx)
	fmt.Println("free:", free)
	// Output:
	// a second one: true
	// free: 1
}

func ExampleLocker_Latch() {
	rdb, closeAll := connect()
	defer closeAll()
	ctx := context.Background()
	locker := lock.New(rdb)
	defer locker.Close()

	ready := locker.Latch("ready")
	ready.TrySetCount(ctx, 2)
	for range 2 {
		go ready.CountDown(ctx)
	}
	fmt.Println(ready.Await(ctx))
	// Output:
	// <nil>
}

func ExampleLead() {
	rdb, closeAll := connect()
	defer closeAll()
	locker := lock.New(rdb)
	defer locker.Close()

	ctx, resign := context.WithCancelCause(context.Background())
	err := lock.Lead(ctx, locker.Fenced("leader"), func(ctx context.Context) {
		fmt.Println("leading, with a token:", lock.TokenFrom(ctx) > 0)
		resign(errors.New("resigned"))
		<-ctx.Done()
	})
	fmt.Println(err)
	// Output:
	// leading, with a token: true
	// resigned
}
