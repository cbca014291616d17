/*  >>lbfgs.search - a line search for the strong Wolfe conditions, as torch.optim.LBFGS has it

    Widens the step until it has a bracket, then narrows that by cubic interpolation (Nocedal and Wright, Numerical
    Optimization, 2006, algorithms 3.5 and 3.6).
    Uses: lbfgs_state. */

#include "room.h"

static double ignis__lbfgs_abs(double x) { return x < 0 ? -x : x; }

/*  Returns the root of a number above 0, to the last bits, by Newton's iteration. */
static double ignis__lbfgs_root(double x)
{
    uint64_t bits;
    double root;
    int i;
    if (!(x > 0) || !ignis__is_finite(x))
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits >> 1) + 0x1ff7a3bea91d9b1bULL; /* half the exponent: within 4 % */
    memcpy(&root, &bits, sizeof root);
    for (i = 0; i < 5; i++)
        root = 0.5 * (root + x / root);
    return root;
}

/*  Returns where the cubic through two points with their slopes is least, between low and high. */
static double ignis__lbfgs_cubic(const ignis__lbfgs_point *a, const ignis__lbfgs_point *b, double low, double high)
{
    const double d1 = a->slope + b->slope - 3 * (a->loss - b->loss) / (a->t - b->t);
    const double square = d1 * d1 - a->slope * b->slope;
    double d2, t;
    if (!(square >= 0))
        return (low + high) / 2;
    d2 = ignis__lbfgs_root(square);
    if (a->t <= b->t)
        t = b->t - (b->t - a->t) * ((b->slope + d2 - d1) / (b->slope - a->slope + 2 * d2));
    else
        t = a->t - (a->t - b->t) * ((a->slope + d2 - d1) / (a->slope - b->slope + 2 * d2));
    return t > high ? high : t > low ? t : low;
}

typedef struct ignis__lbfgs_line {
    const char *call;
    ignis__optimizer *optimizer;
    ignis_loss_fn fn;
    void *user_data;
    ignis__lbfgs_point start;
    double largest; /* element of the direction */
    int losses, limit, count;
    ignis__lbfgs_point end[2]; /* of the bracket; `count` */
} ignis__lbfgs_line;

/*  Computes a point of the line, with a gradient array that neither the line nor `other` has. */
static bool ignis__lbfgs_try(ignis__lbfgs_line *line, double t, const ignis__lbfgs_point *other,
                             ignis__lbfgs_point *point)
{
    const ignis__lbfgs *l = line->optimizer->lbfgs;
    unsigned used = 1u << line->start.g | 1u << other->g | 1u << l->before;
    ignis_array g, d;
    int i;
    for (i = 0; i < line->count; i++)
        used |= 1u << line->end[i].g;
    for (point->g = 0; used >> point->g & 1; point->g++)
        ;
    point->t = t;
    line->losses++;
    if (!ignis__lbfgs_move(line->optimizer, t) ||
        !ignis__lbfgs_loss(line->call, line->optimizer, line->fn, line->user_data, point))
        return false;
    g = ignis__lbfgs_handle(l->g[point->g]);
    d = ignis__lbfgs_handle(l->d);
    return ignis__lbfgs_number(l->numbers[(l->first + l->count) % (l->desc.history + 1)], IGNIS_REDUCE_SUM, "g*d",
                               IGNIS_ARRAYS(g, d), &point->slope);
}

#define IGNIS__WOLFE_DECREASE 1e-4
#define IGNIS__WOLFE_SLOPE 0.9
#define IGNIS__WOLFE_CHANGE 1e-9 /* of a parameter, which ends a search */

static bool ignis__wolfe_too_high(const ignis__lbfgs_line *line, const ignis__lbfgs_point *p)
{
    return p->loss > line->start.loss + IGNIS__WOLFE_DECREASE * p->t * line->start.slope;
}

static bool ignis__wolfe_is_flat(const ignis__lbfgs_line *line, const ignis__lbfgs_point *p)
{
    return ignis__lbfgs_abs(p->slope) <= -IGNIS__WOLFE_SLOPE * line->start.slope;
}

/*  Finds a point that fulfils both conditions (the bracket has one end then), or a bracket of two ends. */
static bool ignis__wolfe_widen(ignis__lbfgs_line *line, double t, int *steps)
{
    ignis__lbfgs_point before = line->start, now;
    double next;
    if (!ignis__lbfgs_try(line, t, &before, &now))
        return false;
    for (; *steps < line->limit; ++*steps) {
        line->end[0] = before;
        line->end[1] = now;
        line->count = 2;
        if (ignis__wolfe_too_high(line, &now) || (*steps > 1 && now.loss >= before.loss))
            return true;
        if (ignis__wolfe_is_flat(line, &now)) {
            line->end[0] = now;
            line->count = 1;
            return true;
        }
        if (now.slope >= 0)
            return true;
        next = ignis__lbfgs_cubic(&before, &now, now.t + 0.01 * (now.t - before.t), now.t * 10);
        before = now;
        line->count = 0;
        if (!ignis__lbfgs_try(line, next, &before, &now))
            return false;
    }
    line->end[0] = line->start;
    line->end[1] = now;
    line->count = 2;
    return true;
}

/*  Narrows a bracket until one end fulfils both conditions. *low: the end with the lower loss. */
static bool ignis__wolfe_narrow(ignis__lbfgs_line *line, int *steps, int *low)
{
    bool slow = false, done = false;
    ignis__lbfgs_point now, *const end = line->end;
    while (!done && *steps < line->limit) {
        const double least = end[0].t < end[1].t ? end[0].t : end[1].t,
                     most = end[0].t < end[1].t ? end[1].t : end[0].t, margin = 0.1 * (most - least);
        double t;
        if ((most - least) * line->largest < IGNIS__WOLFE_CHANGE)
            break;
        t = ignis__lbfgs_cubic(&end[0], &end[1], least, most);
        if (most - t < margin || t - least < margin) {
            if (slow || t >= most || t <= least) {
                t = most - t < t - least ? most - margin : least + margin;
                slow = false;
            } else {
                slow = true;
            }
        } else {
            slow = false;
        }
        if (!ignis__lbfgs_try(line, t, &end[0], &now))
            return false;
        ++*steps;
        if (ignis__wolfe_too_high(line, &now) || now.loss >= end[*low].loss) {
            end[1 - *low] = now;
            *low = end[0].loss <= end[1].loss ? 0 : 1;
        } else {
            if (ignis__wolfe_is_flat(line, &now))
                done = true;
            else if (now.slope * (end[1 - *low].t - end[*low].t) >= 0)
                end[1 - *low] = end[*low];
            end[*low] = now;
        }
    }
    return true;
}

/*  Searches along d from *point on, t first, and makes *point the one that it ends at. The parameters are moved there
    by the caller. */
IGNIS__PRIVATE bool ignis__lbfgs_search(const char *call, ignis__optimizer *optimizer, ignis_loss_fn fn,
                                        void *user_data, ignis__lbfgs_point *point, double t, int *losses)
{
    const ignis__lbfgs *l = optimizer->lbfgs;
    const ignis_array d = ignis__lbfgs_handle(l->d);
    ignis__lbfgs_line line = IGNIS__ZERO;
    int steps = 0, low = 0;
    bool ok;
    line.call = call;
    line.optimizer = optimizer;
    line.fn = fn;
    line.user_data = user_data;
    line.start = *point;
    line.limit = l->desc.max_eval - *losses;
    ok = ignis__lbfgs_number(l->numbers[(l->first + l->count) % (l->desc.history + 1)], IGNIS_REDUCE_MAX, "abs(d)",
                             IGNIS_ARRAYS(d), &line.largest) &&
         ignis__wolfe_widen(&line, t, &steps);
    if (ok && line.count == 2) {
        low = line.end[0].loss <= line.end[1].loss ? 0 : 1;
        ok = ignis__wolfe_narrow(&line, &steps, &low);
    }
    *losses += line.losses;
    if (ok)
        *point = line.end[low];
    return ok;
}
