"""Distillation of the similarities between queries and prototypes: DwPP, DwoPP and decoupled distillation."""

import math

import torch
from torch import Tensor

from lreid.losses._ops import Distance, check, check_alike, check_rows, log_probabilities, to_loss, without_column
from lreid.losses.episodes import Episode, prototype_logits, split_episode

MIXTURE = 1e-5  # weight of the uniform distribution that DwoPP's official code adds at temperatures other than 1


def dwpp_loss(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    num_support: int,
    *,
    temperature: float = 10.0,
    prob_floor: float = 1e-4,
    metric: Distance = "sqeuclidean",
) -> Tensor:
    """Compute the distillation loss with positive pairs (DwPP) of one episode.

    A query's similarities ``z`` to all class prototypes (:func:`~lreid.losses.episodes.prototype_logits`) become a
    distribution ``p = softmax(z / temperature)``. The loss is the mean over the queries of ``sum_c p_old log(p_old /
    p_new)``. Probabilities below ``prob_floor`` are raised to ``prob_floor``; raised probabilities of the student get
    no gradient. The loss is computed in float64 from log-probabilities.

    Source: Wang et al., "Positive Pair Distillation Considered Harmful", BMVC 2022, Eqs. 5 and 6. The paper prints a
    sum over queries, the Euclidean distance without a square, and no minimum probability; the defaults follow DwoPP's
    official code. For the paper's form, pass ``metric="euclidean", prob_floor=0`` and multiply the loss by the number
    of queries. At temperatures other than 1, DwoPP's official code mixes a uniform distribution with weight 1e-5 into
    both distributions. This function mixes in the same distribution unless ``prob_floor=0``. DwoPP's official code
    takes a root of a float32 softmax, so its gradient is NaN if the softmax underflows. The gradient of this function
    is always finite.

    Args:
        student: ``(B, D)`` float features of the model in training, not scaled to unit length.
        teacher: ``(B, D')`` float features of the same images by the previous model; no gradient flows to them.
        labels: ``(B,)`` integers, in any order. The first ``num_support`` rows of each label are its supports; the
            other rows are queries. Classes may have different numbers of rows and any number of queries.
        num_support: number of supports per class, at least 1.
        temperature: divisor of the similarities, above 0.
        prob_floor: minimum probability, in ``[0, 1)``; 0 gives the paper's form, without the uniform distribution.
        metric: ``sqeuclidean`` (official code), ``euclidean`` (paper), or ``cosine``.

    Returns:
        Scalar in the dtype of ``student`` (float32 for half precision); 0 for a single class.

    Raises:
        ValueError: a shape or an option is invalid, or the batch has no query.
    """
    old, new, _ = _episode_logits(student, teacher, labels, num_support, metric)
    return _distillation(old, new, temperature, prob_floor, student)


def dwopp_loss(
    student: Tensor,
    teacher: Tensor,
    labels: Tensor,
    num_support: int,
    *,
    temperature: float = 1.0,
    prob_floor: float = 1e-4,
    metric: Distance = "sqeuclidean",
) -> Tensor:
    """Compute the distillation loss without positive pairs (DwoPP) of one episode.

    Unlike :func:`dwpp_loss`, this loss leaves out the prototype of the query's own class before the softmax (Eqs. 7 and
    8). DwoPP therefore distils only the similarities to other classes. The loss is 0 for one or two classes.

    Arguments, return value and errors are those of :func:`dwpp_loss`.
    """
    old, new, episode = _episode_logits(student, teacher, labels, num_support, metric)
    old, new = without_column(old, episode.target), without_column(new, episode.target)  # (Q, N - 1)
    return _distillation(old, new, temperature, prob_floor, student)


def decoupled_distillation_loss(
    student_logits: Tensor,
    teacher_logits: Tensor,
    targets: Tensor,
    *,
    alpha: float | Tensor,
    beta: float | Tensor,
    temperature: float = 1.0,
) -> Tensor:
    """Compute the decoupled distillation loss ``alpha * TCKD + beta * NCKD``, mean over rows, times ``T²``.

    The probabilities are ``p = softmax(z / T)`` with logits ``z``; ``rho`` is the probability of the target class. TCKD
    (target class) is the KL divergence between the teacher's and the student's ``(rho, 1 - rho)``. NCKD (non-target
    classes) is the KL divergence between the teacher's and the student's distributions over the other classes. For each
    row, ``KL(p_old || p_new) = TCKD + (1 - rho_old) * NCKD``. At ``T = 1``, NCKD equals DwoPP's loss
    (:func:`dwopp_loss`) with ``prob_floor=0``.

    Source: Zhao et al., "Decoupled Knowledge Distillation" (DKD), CVPR 2022; DwoPP's paper (BMVC 2022), Table 3. DKD's
    official code subtracts 1000 from the logit of the target class to exclude this class. Squared distances can exceed
    1000, so this function instead removes the column of the target class. The loss is computed in float64 from
    log-probabilities.

    Args:
        student_logits: ``(Q, C)`` float.
        teacher_logits: ``(Q, C)`` float; no gradient flows to them.
        targets: ``(Q,)`` int64, the target class of each row.
        alpha: weight of TCKD; a number, or ``(Q,)`` with one weight per row.
        beta: weight of NCKD; a number, or ``(Q,)`` with one weight per row.
        temperature: divisor of the logits, above 0.

    Returns:
        Scalar in the dtype of ``student_logits`` (float32 for half precision); 0 for a single class.

    Raises:
        ValueError: the shapes do not match, or the temperature is not above 0.
    """
    check_alike(student_logits, teacher_logits, "student_logits and teacher_logits", "(Q, C)")
    check_rows(student_logits, targets, "student_logits")
    if student_logits.shape[1] == 1:  # with one class every probability is 1
        return to_loss(0 * student_logits.sum(), student_logits)
    new = log_probabilities(student_logits, temperature)  # (Q, C)
    old = log_probabilities(teacher_logits.detach(), temperature)
    old_others, new_others = without_column(old, targets), without_column(new, targets)  # (Q, C - 1)
    tckd = _kl(_target_or_not(old, old_others, targets), _target_or_not(new, new_others, targets))  # (Q,)
    nckd = _kl(old_others.log_softmax(1), new_others.log_softmax(1))  # (Q,)
    return to_loss((alpha * tckd + beta * nckd).mean() * temperature**2, student_logits)


def _episode_logits(
    student: Tensor, teacher: Tensor, labels: Tensor, num_support: int, metric: Distance
) -> tuple[Tensor, Tensor, Episode]:
    """Compute the logits ``(Q, N)`` of the teacher and of the student, and the episode."""
    check_rows(student, labels, "student")
    check_rows(teacher, labels, "teacher")
    episode = split_episode(labels, num_support, student.device)
    old = prototype_logits(teacher.detach(), episode, metric)
    return old, prototype_logits(student, episode, metric), episode


def _target_or_not(log_probs: Tensor, log_others: Tensor, targets: Tensor) -> Tensor:
    """Compute ``(log rho, log(1 - rho))`` of each row, ``(Q, 2)``, without the inexact subtraction ``1 - rho``."""
    return torch.stack([log_probs.gather(1, targets[:, None])[:, 0], log_others.logsumexp(1)], dim=1)


def _kl(log_old: Tensor, log_new: Tensor) -> Tensor:
    """Compute ``KL(old || new)`` of each row: ``(Q, C)`` to ``(Q,)``."""
    return (log_old.exp() * (log_old - log_new)).sum(1)


def _distillation(old: Tensor, new: Tensor, temperature: float, prob_floor: float, student: Tensor) -> Tensor:
    """Compute the distillation loss from the old and the new logits, both ``(Q, C)``."""
    log_old, log_new = (log_probabilities(each, temperature) for each in (old, new))  # (Q, C)
    if temperature != 1 and prob_floor:
        log_old, log_new = _with_uniform(log_old), _with_uniform(log_new)
    return to_loss(floored_kl(log_old, log_new, prob_floor), student)


def _with_uniform(log_probs: Tensor) -> Tensor:
    """Mix a uniform distribution, with the weight ``MIXTURE``, into log-probabilities ``(Q, C)``; C may be 0."""
    uniform = log_probs.new_full((), MIXTURE / max(log_probs.shape[1], 1)).log()
    return torch.logaddexp(log_probs, uniform) - math.log1p(MIXTURE)


def floored_kl(log_old: Tensor, log_new: Tensor, prob_floor: float) -> Tensor:
    """Raise probabilities to at least ``prob_floor``; compute the mean KL divergence of the rows ``(Q, C)``."""
    check(0 <= prob_floor < 1, f"prob_floor must be in [0, 1), got {prob_floor}")
    floor = math.log(prob_floor) if prob_floor else -math.inf
    return _kl(log_old.clamp(min=floor), log_new.clamp(min=floor)).mean()
