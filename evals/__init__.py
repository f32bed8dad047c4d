"""Quality: `cairn eval` on any set of questions (docs/evaluation.md), and what fits and checks our own parts.

loading, corpus, dataset, lines     a set as it lies in its folder, and as it is read
indexing, pipeline, running         its index, the production handlers over it, all questions through them
measures, grading, deciding, answering, claims     what each stage is worth
evaluating, sheet                   all of it together, and the report as data
comparing, gate                     two reports; a report and its bounds
words, report, page, plots          reports for people
judge_data, fit_judge, cascade      coefficients of the embedded judge; what asking a model only in doubt saves
refine, handbook                    what refinement keeps; the sample handbook through `cairn up`
"""
